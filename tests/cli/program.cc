#include "tests/cli/program.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "parax/base/file.h"
#include "tests/data/image_writer.h"

namespace parax::testing {
namespace {

namespace fs = std::filesystem;

void Redirect(int descriptor, const fs::path& path, int flags) {
  const int file = open(path.c_str(), flags, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(99);
}

}  // namespace

Program::Program(const fs::path& folder, const std::vector<std::string>& arguments,
                 const std::string& input) {
  static int number = 0;
  log_ = folder / fmt::format("child-{}", ++number);
  fs::create_directories(log_);
  std::ofstream(log_ / "in", std::ios::binary) << input;
  std::vector<char*> argv = {const_cast<char*>(PARAX_BINARY)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.data()));
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ != 0) return;
  Redirect(0, log_ / "in", O_RDONLY);
  Redirect(1, log_ / "out", O_WRONLY | O_CREAT | O_TRUNC);
  Redirect(2, log_ / "err", O_WRONLY | O_CREAT | O_TRUNC);
  if (chdir(folder.c_str()) != 0) _exit(99);
  setenv("XDG_CACHE_HOME", (folder / "cache").c_str(), 1);
  execv(PARAX_BINARY, argv.data());
  _exit(99);
}

Program::~Program() {
  if (ended_ || pid_ <= 0) return;
  Signal(SIGKILL);
  (void)Wait();
}

void Program::Signal(int number) const { kill(pid_, number); }

bool Program::HasEnded() {
  if (!ended_) ended_ = waitpid(pid_, &raw_status_, WNOHANG) == pid_;
  return ended_;
}

bool Program::Await(const std::function<bool()>& condition) {
  while (!condition()) {
    if (HasEnded()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

std::string Program::Errors() const {
  return fs::exists(log_ / "err") ? ReadFile(log_ / "err") : "";
}

ProgramResult Program::Wait() {
  if (!ended_) waitpid(pid_, &raw_status_, 0);
  ended_ = true;
  ProgramResult result;
  result.status = WIFEXITED(raw_status_) ? WEXITSTATUS(raw_status_) : 128 + WTERMSIG(raw_status_);
  result.out = ReadFile(log_ / "out");
  result.err = ReadFile(log_ / "err");
  return result;
}

ProgramResult RunProgram(const fs::path& folder, const std::vector<std::string>& arguments,
                         const std::string& input) {
  return Program(folder, arguments, input).Wait();
}

void MakeData(const fs::path& folder) {
  for (const bool red : {true, false}) {
    for (int i = 0; i < 16; ++i) {
      Image image = MakePicture(20 + i % 3, 20);
      for (int y = 0; y < image.height; ++y) {
        for (int x = 0; x < image.width; ++x) {
          uint8_t* p = image.row(y) + 3 * x;
          p[red ? 0 : 2] = static_cast<uint8_t>(200 + 3 * i);
          p[red ? 2 : 0] = static_cast<uint8_t>(2 * i);
        }
      }
      const fs::path place = folder / (i < 12 ? "train" : "val") / (red ? kRed : "blue");
      fs::create_directories(place);
      const bool png = i % 4 == 0;
      std::ofstream(place / fmt::format("{:02}.{}", i, png ? "png" : "jpg"), std::ios::binary)
          << (png ? WritePng(image) : WriteJpeg(image));
    }
  }
}

std::vector<std::string> TrainCommand(const std::vector<std::string>& more) {
  std::vector<std::string> command = {
      "train", "--data", "data", "--model",     "resnet20", "--batch",      "8", "--layout",
      "nhwc",  "--tune", "off",  "--instances", "1",        "--image-size", "16"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

void TrainRun(const fs::path& folder) {
  MakeData(folder / "data");
  const ProgramResult result = RunProgram(
      folder, TrainCommand({"--epochs", "16", "--eval-every", "4ep", "--save-every", "4ep", "--lr",
                            "0.05", "--resize", "16", "--out", "run", "--quiet"}));
  ASSERT_EQ(result.status, 0) << result.err;
}

bool Holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace parax::testing
