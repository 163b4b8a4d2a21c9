#pragma once

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

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

// Makes mbind fail in the calling thread until its end, as containers do; false when not possible.
inline bool DenyMbind() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {4, code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

inline const char* const kTwoBy28 = "pack:2 [numa(memory=256000000000)] core:28 pu:1";
inline const char* const kTwoBy56Smt = "pack:2 [numa(memory=256000000000)] core:56 pu:2";

}  // namespace parax
