#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "parax/base/error.h"

namespace parax::testing {

// A folder of the test's own, removed at its end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "parax-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw Error("no temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The shared data folder's file; the caller skips when it is not there.
inline std::filesystem::path SharedFile(const std::string& name) {
  const char* data = std::getenv("PARAX_DATA");
  const std::filesystem::path root =
      data != nullptr ? std::filesystem::path(data)
                      : std::filesystem::path(PARAX_SOURCE_DIR) / "../shared/data";
  return root / name;
}

// What `action` throws as Error, "" when nothing; a message must be one line.
template <typename Action>
std::string ErrorOf(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  return "";
}

}  // namespace parax::testing
