#include "parax/base/dtype.h"

namespace parax {

std::string_view Name(DType type) {
  switch (type) {
    case DType::kF32:
      return "fp32";
    case DType::kBF16:
      return "bf16";
    case DType::kI64:
      return "int64";
    case DType::kI32:
      return "int32";
    case DType::kU8:
      return "uint8";
  }
  return "unknown dtype";
}

}  // namespace parax
