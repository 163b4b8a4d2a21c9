#include "parax/cli/train.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "parax/base/error.h"
#include "parax/base/file.h"
#include "parax/base/log.h"
#include "parax/cli/commands.h"
#include "parax/cli/recording.h"
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

// What this run has made of its folder, the deepest first, and the lock in it: of a run that ends
// before it writes its first file nothing stays.
std::vector<std::string> made_folders;
std::string made_lock;

void RemoveMadeFolders() {  // a signal handler calls it too
  if (made_folders.empty()) return;
  unlink(made_lock.c_str());
  for (const std::string& folder : made_folders) rmdir(folder.c_str());  // those that hold nothing
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
  for (const std::string& line : WithoutEffect(options)) Warn("{}", line);
  std::optional<ResumePoint> resume = FindResumePoint(options);
  if (resume) {
    CheckValues(resume->options);
  } else if (!options.init_from.empty() && !std::filesystem::exists(options.init_from)) {
    Fail("--init-from {}: there is no such file or folder", options.init_from.string());
  }
  TrainSetup setup = ResolveTraining(resume ? resume->options : options, resume.has_value());
  const std::filesystem::path lock_path = options.out / ".lock";
  std::vector<std::string> missing;
  for (std::filesystem::path folder = options.out;
       !folder.empty() && !std::filesystem::exists(folder); folder = folder.parent_path()) {
    missing.push_back(folder);
  }
  CheckWritable(options.out);
  const FileLock lock(lock_path, options.out.string());
  made_lock = lock_path;
  made_folders = std::move(missing);
  ExitOnStopSignals(RemoveMadeFolders);
  std::optional<Recording> recording;
  std::optional<TrainRun> run;
  try {
    recording.emplace(given, setup.machine);
    setup.trainer.trace = recording->trace();
    run.emplace(std::move(setup), std::move(resume), *recording);
  } catch (...) {
    RemoveMadeFolders();
    ExitOnStopSignals();  // without them: they go before the program does
    throw;
  }
  int status = 1;
  try {
    status = run->Run();
  } catch (...) {
    recording->Write();  // what went on before the failure is worth a look
    throw;
  }
  recording->Write();
  return status;
}

}  // namespace parax
