#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "parax/sched/machine_model.h"

namespace parax {

// A machine description for `parax sim`, such as those in machines/: see docs/cli.md. `where` names
// it in errors. Throws UsageError: one line, what is wrong, where, what would be right.
MachineModel ParseMachine(std::string_view toml, const std::string& where);
MachineModel ReadMachine(const std::filesystem::path& file);

}  // namespace parax
