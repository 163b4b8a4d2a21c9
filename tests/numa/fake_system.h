#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "parax/base/error.h"

namespace parax {

// A folder that stands for "/" (TopologyOptions::root) until the object goes.
class FakeRoot {
 public:
  FakeRoot() {
    std::string name = (std::filesystem::temp_directory_path() / "parax-root-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) Fail("cannot make a temporary folder");
    path_ = name;
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  void Write(const std::string& file, const std::string& text) const {
    const std::filesystem::path full = path_ / file;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text << "\n";
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// An environment variable set until the object goes.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~ScopedEnv() { unsetenv(name_); }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  const char* name_;
};

// A machine that hwloc is told about instead of this one.
class FakeMachine : public ScopedEnv {
 public:
  explicit FakeMachine(const std::string& synthetic) : ScopedEnv("HWLOC_SYNTHETIC", synthetic) {}
};

inline const char* const kTwoBy28 = "pack:2 [numa(memory=256000000000)] core:28 pu:1";
inline const char* const kTwoBy56Smt = "pack:2 [numa(memory=256000000000)] core:56 pu:2";

}  // namespace parax
