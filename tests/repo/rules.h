#pragma once

#include <string>
#include <vector>

#include "tests/repo/tree.h"

// The repository's rules, each as a function from one file to what is wrong with it (one
// "path:line: what" each), so that they can be tried on made-up files too.
namespace parax::repo {

using Findings = std::vector<std::string>;

// base < numa < {layers, sched, gradserver} < data < engine < {models, hybrid} < cli: a folder
// includes only what stands left of it.
Findings IncludeOrder(const SourceFile& file);
// Heavy or foreign headers (oneDNN, JSON, ...) stay in .cc and *_internal.h files, and no public
// header includes an internal one.
Findings PublicHeadersAreLight(const SourceFile& file);
// At most 350 lines a file of code.
Findings Length(const SourceFile& file);
// No folder of one machine, no registry's host.
Findings NoPlaces(const SourceFile& file);
// No unfinished business, no test that is switched off or waits by sleeping.
Findings Finished(const SourceFile& file);
// No flag that ties the binary to one machine or changes its arithmetic.
Findings PortableFlags(const SourceFile& file);

}  // namespace parax::repo
