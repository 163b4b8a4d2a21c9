#pragma once

#include <cstdint>
#include <string_view>

namespace parax {

// What hot code returns. Anything but kOk ends the iteration; details are in the run's StopFlag.
enum class [[nodiscard]] Outcome : uint8_t{
    kOk = 0,
    kStopped,       // somebody asked for a stop while we waited
    kTimeout,       // a named wait outlived its deadline
    kNotFinite,     // a loss or gradient is NaN or infinite
    kKernelFailed,  // a oneDNN primitive returned an error
    kInputFailed,   // no more input; InputSource::ErrorLine says why
};

std::string_view Name(Outcome outcome);

}  // namespace parax
