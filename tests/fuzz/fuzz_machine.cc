#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "parax/base/error.h"
#include "parax/cli/machine_file.h"

// What is read must be a machine that can be simulated; anything else is a UsageError of one line.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const parax::MachineModel machine =
        parax::ParseMachine({reinterpret_cast<const char*>(data), size}, "fuzz.toml");
    if (machine.cores() < 1 || !(machine.core_flops > 0)) abort();
    if (machine.bandwidth.size() != static_cast<size_t>(machine.cores_per_domain)) abort();
    for (const double value : machine.bandwidth) {
      if (!(value > 0 && value < 1e18)) abort();
    }
  } catch (const parax::UsageError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) abort();
  }
  return 0;
}
