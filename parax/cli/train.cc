#include "parax/cli/train.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "parax/base/error.h"
#include "parax/base/file.h"
#include "parax/base/log.h"
#include "parax/cli/signals.h"
#include "parax/cli/train_run.h"

namespace parax {
namespace {

// Fails now, not after an hour of training.
void CheckWritable(const std::filesystem::path& out) {
  std::error_code error;
  std::filesystem::create_directories(out, error);
  if (error) Fail("can't create the output folder {}: {}", out.string(), error.message());
  if (access(out.c_str(), W_OK | X_OK) != 0) {
    Fail("can't write to the output folder {}: {}", out.string(), std::strerror(errno));
  }
}

// The run folder and its lock when this run made them: of a run that does not come to its first
// step nothing stays.
std::string made_folder, made_lock;

void RemoveMadeFolder() {  // a signal handler calls it too
  if (made_folder.empty()) return;
  unlink(made_lock.c_str());
  rmdir(made_folder.c_str());  // does nothing once it holds anything
}

std::filesystem::path DefaultOut(const std::string& model) {
  std::string name = model;
  for (char& c : name) {
    if (c == ':' || c == ',' || c == '/') c = '-';
  }
  return std::filesystem::path("runs") /
         fmt::format("{:%Y%m%d-%H%M%S}-{}", fmt::localtime(std::time(nullptr)), name);
}

}  // namespace

int RunTrain(const Options& given) {
  SetQuiet(given.quiet || given.json);
  Options options = given;
  if (options.out.empty()) {
    // --resume PATH goes on in the run folder that the checkpoint lies in.
    const std::string from = options.resume.value_or("");
    if (!from.empty() && from != "auto") {
      options.out = RunFolderOf(from);
    } else if (options.resume) {
      FailUsage("--resume needs --out RUN_FOLDER, or --resume RUN_FOLDER");
    } else {
      options.out = DefaultOut(options.model);
    }
  }
  std::optional<ResumePoint> resume = FindResumePoint(options);
  TrainSetup setup = ResolveTraining(resume ? resume->options : options);
  const std::filesystem::path lock_path = options.out / ".lock";
  const bool is_new = !std::filesystem::exists(options.out);
  CheckWritable(options.out);
  const FileLock lock(lock_path, options.out.string());
  if (is_new) {
    made_lock = lock_path;
    made_folder = options.out;
    ExitOnStopSignals(RemoveMadeFolder);
  }
  std::optional<TrainRun> run;
  try {
    run.emplace(std::move(setup), std::move(resume));
  } catch (...) {
    RemoveMadeFolder();
    throw;
  }
  return run->Run();
}

}  // namespace parax
