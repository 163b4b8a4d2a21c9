#pragma once

#include "parax/cli/options.h"

namespace parax {

// `parax train`. Returns the exit status: 0 done, 1 diverged or not saved, 130 interrupted (and
// saved). Throws UsageError and Error for what can't be.
int RunTrain(const Options& options);

}  // namespace parax
