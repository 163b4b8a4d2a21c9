#include <fmt/core.h>
#include <signal.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>

#include "parax/base/error.h"
#include "parax/base/log.h"
#include "parax/cli/commands.h"
#include "parax/cli/signals.h"

namespace {

int Run(int argc, char** argv) {
  using namespace parax;
  const std::optional<Options> options = ParseCommandLine(argc, argv);
  if (!options) return 0;
  CheckValues(*options);
  if (options->parse_only) return 0;
  ExitOnStopSignals();
  // `parax predict ... | head` ends quietly; training outlives whoever reads its log.
  signal(SIGPIPE, options->command == "train" ? SIG_IGN : SIG_DFL);
  return RunCommand(*options);
}

}  // namespace

// Exit status: 0 done, 1 failed, 2 usage, 130 interrupted.
int main(int argc, char** argv) {
  signal(SIGXFSZ, SIG_IGN);  // a file size limit is then an error like a full disk
  try {
    const int status = Run(argc, argv);
    if (std::fflush(stdout) != 0) parax::Fail("cannot write to standard output");
    return status;
  } catch (const parax::UsageError& error) {
    parax::LogLine(parax::LogLevel::kError, error.what());
    return 2;
  } catch (const std::filesystem::filesystem_error& error) {
    parax::LogLine(parax::LogLevel::kError, fmt::format("cannot use {}: {}", error.path1().string(),
                                                        error.code().message()));
    return 1;
  } catch (const std::bad_alloc&) {
    parax::LogLine(parax::LogLevel::kError,
                   "out of memory: see `ulimit -v`, the cgroup's limit, and `parax plan`");
    return 1;
  } catch (const std::system_error& error) {
    const std::string what = error.what();
    const std::string why = error.code().message();
    const bool thread = error.code() == std::errc::resource_unavailable_try_again;
    parax::LogLine(parax::LogLevel::kError,
                   what.starts_with("cannot write to file")
                       ? "cannot write to standard output: " + why
                   : thread ? "cannot start a thread: see `ulimit -u` and the cgroup's pids limit"
                            : what);
    return 1;
  } catch (const std::exception& error) {
    parax::LogLine(parax::LogLevel::kError, error.what());
    return 1;
  }
}
