#include "parax/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "parax/base/text.h"

namespace parax {
namespace {

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    sink->set_pattern("%v");
    return std::make_shared<spdlog::logger>("parax", sink);
  }();
  return *logger;
}

}  // namespace

void SetQuiet(bool quiet) { Logger().set_level(quiet ? spdlog::level::warn : spdlog::level::info); }

void LogLine(LogLevel level, std::string_view raw) {
  const std::string line = Printable(raw);
  switch (level) {
    case LogLevel::kInfo:
      return Logger().info("{}", line);
    case LogLevel::kWarning:
      return Logger().warn("warning: {}", line);
    case LogLevel::kError:
      return Logger().error("error: {}", line);
  }
}

}  // namespace parax
