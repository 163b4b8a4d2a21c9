#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "parax/data/index.h"

// Any bytes: read as a whole file, and, because hardly any pass the check sum, also as what stands
// behind it. What is read must have safe names, and written again must read the same.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)parax::ParseIndex(bytes);
  const auto index = parax::ParseIndexPayload(bytes);
  if (!index) return 0;
  for (const parax::FolderRecord& folder : *index) {
    for (const parax::FileRecord& file : folder.files) {
      if (folder.name(file).empty()) abort();
    }
  }
  const std::string written = parax::SerializeIndex(*index);
  const auto again = parax::ParseIndex(written);
  if (!again || parax::SerializeIndex(*again) != written) abort();
  return 0;
}
