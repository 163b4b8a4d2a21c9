#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace parax {

// Progress and logs go to standard error; standard output is for results. Setup code only.
enum class LogLevel { kInfo, kWarning, kError };

void SetQuiet(bool quiet);  // keep warnings and errors only
// Always one line: line ends and escape codes in it are shown (Printable).
void LogLine(LogLevel level, std::string_view line);

template <typename... Args>
void Info(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void Warn(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace parax
