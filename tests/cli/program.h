#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/engine/test_files.h"

// The program as its users meet it: a child process, its exit status and what it prints.
namespace parax::testing {

struct ProgramResult {
  int status = -1;  // 128 + N: ended by signal N
  std::string out, err;
};

// A child in `folder`, with the layouts that tuning finds cached there.
class Program {
 public:
  Program(const std::filesystem::path& folder, const std::vector<std::string>& arguments,
          const std::string& input = "");
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void Signal(int number) const;
  // Until `condition` holds or the child has ended; false when it had ended.
  bool Await(const std::function<bool()>& condition);
  ProgramResult Wait();
  std::string Errors() const;  // what it has printed on standard error so far

 private:
  bool HasEnded();
  pid_t pid_ = -1;
  int raw_status_ = 0;
  bool ended_ = false;
  std::filesystem::path log_;
};

ProgramResult RunProgram(const std::filesystem::path& folder,
                         const std::vector<std::string>& arguments, const std::string& input = "");

// Class folders of small pictures, easy to tell apart: a blue and a red class whose names need care
// ("red café, ripe" and "blue"). 24 images to train on, 8 to evaluate on.
inline constexpr const char* kRed = "red café, ripe";
void MakeData(const std::filesystem::path& folder);

// A short training of those pictures, with `more` flags behind it.
std::vector<std::string> TrainCommand(const std::vector<std::string>& more);
// Makes `folder`/data, and trains `folder`/run until the classes are told apart.
void TrainRun(const std::filesystem::path& folder);

bool Holds(const std::string& text, const std::string& part);

}  // namespace parax::testing
