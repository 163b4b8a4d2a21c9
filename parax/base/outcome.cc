#include "parax/base/outcome.h"

namespace parax {

std::string_view Name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kStopped:
      return "stopped";
    case Outcome::kTimeout:
      return "timeout";
    case Outcome::kNotFinite:
      return "not finite";
    case Outcome::kKernelFailed:
      return "kernel failed";
    case Outcome::kInputFailed:
      return "input failed";
  }
  return "unknown outcome";
}

}  // namespace parax
