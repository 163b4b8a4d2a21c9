#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace parax {

// A folder of its own under the temporary folder, removed in the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "parax-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

  void Write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
  }

  // Puts every folder's time stamp into the past, as if it had been written yesterday.
  void Settle() const {
    const timespec yesterday{time(nullptr) - 86400, 0};
    const timespec times[2] = {yesterday, yesterday};
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
      if (entry.is_directory()) utimensat(AT_FDCWD, entry.path().c_str(), times, 0);
    }
  }

 private:
  std::filesystem::path path_;
};

// What the index takes for a JPEG, without pixels in it; different texts, different images.
inline std::string SmallJpeg(const std::string& text) {
  return std::string("\xFF\xD8\xFF\xC0\x00\x0B\x08\x00\x04\x00\x04\x01\x01\x11\x00", 15) + text +
         "\xFF\xD9";
}

}  // namespace parax
