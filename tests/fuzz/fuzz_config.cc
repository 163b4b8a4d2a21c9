#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "parax/base/error.h"
#include "parax/cli/options.h"

// What is read must, written again, read the same; anything else is a UsageError of one line.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    parax::Options options = parax::FromToml(text, "fuzz.toml");
    const std::string written = parax::ToToml(options);
    if (parax::ToToml(parax::FromToml(written, "again.toml")) != written) abort();
  } catch (const parax::UsageError&) {
  }
  return 0;
}
