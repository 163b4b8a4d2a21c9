#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <utility>

namespace parax {

// What went wrong in SETUP code, in one line: what is wrong, where, what would be right.
// Hot code never throws: it returns an Outcome (outcome.h).
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A command line, configuration or call that can never work as written (exit status 2).
class UsageError : public Error {
 public:
  using Error::Error;
};

template <typename... Args>
[[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void FailUsage(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace parax
