#include "parax/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "parax/base/error.h"
#include "parax/base/log.h"

namespace parax {
namespace {

class FileDescriptor {
 public:
  // `shown`: what errors call it.
  FileDescriptor(const std::filesystem::path& path, int flags, mode_t mode = 0,
                 const std::filesystem::path* shown = nullptr) {
    do {
      fd_ = open(path.c_str(), flags | O_CLOEXEC, mode);
    } while (fd_ < 0 && errno == EINTR);
    if (fd_ < 0) {
      Fail("cannot open {}: {}", (shown != nullptr ? *shown : path).string(), std::strerror(errno));
    }
  }
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct stat CheckRegular(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat info {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    Fail("{} is not a regular file", path.string());
  }
  return info;
}

void WriteAll(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail("cannot write {}: {}", path.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

}  // namespace

std::string ReadFile(const std::filesystem::path& path, size_t max_bytes) {
  const FileDescriptor file(path, O_RDONLY | O_NONBLOCK);  // of a pipe nobody may be at the end
  CheckRegular(file, path);
  std::string content;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = read(file.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail("cannot read {}: {}", path.string(), std::strerror(errno));
    if (n == 0) return content;
    content.append(buffer, static_cast<size_t>(n));
    if (content.size() > max_bytes) Fail("{} is larger than {} bytes", path.string(), max_bytes);
  }
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const FileDescriptor file(path, O_RDONLY | O_NONBLOCK);
  const struct stat info = CheckRegular(file, path);
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* data = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) Fail("cannot map {}: {}", path.string(), std::strerror(errno));
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

FileLock::FileLock(const std::filesystem::path& path, std::string_view what) {
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) Fail("cannot open {}: {}", path.string(), std::strerror(errno));
  if (flock(file_, LOCK_EX | LOCK_NB) == 0) return;
  // A file system without locks (some network ones) is no reason not to work.
  const bool held = errno == EWOULDBLOCK;
  if (held) {
    close(file_);
    Fail("{} is in use by another process", what);
  }
}

FileLock::~FileLock() { close(file_); }

std::filesystem::path CacheFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return std::filesystem::path(cache) / "parax";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return std::filesystem::path(home) / ".cache/parax";
  return {};
}

void KeepInCache(const std::filesystem::path& file, std::string_view content,
                 std::string_view what) {
  std::error_code none;  // of a folder that may not be searched
  const auto type = std::filesystem::status(file, none).type();
  using Type = std::filesystem::file_type;
  if (file.empty() || (type != Type::regular && type != Type::not_found)) return;
  try {
    std::filesystem::create_directories(file.parent_path());
    WriteFileAtomically(file, content);
  } catch (const std::exception& error) {
    Info("{} is not kept: {}", what, error.what());
  }
}

void SyncFolder(const std::filesystem::path& folder) {
  const FileDescriptor dir(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
  if (fsync(dir.get()) != 0 && errno != EINVAL) {
    Fail("cannot sync folder {}: {}", folder.string(), std::strerror(errno));
  }
}

void WriteFileAtomically(const std::filesystem::path& given,
                         std::span<const std::span<const std::byte>> pieces) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::weakly_canonical(given, error);
  const std::filesystem::path path = error ? given : target;  // through symbolic links
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    // A device or pipe (/dev/stdout ...) is written to, never replaced.
    const FileDescriptor file(path, O_WRONLY);
    for (const auto& piece : pieces) WriteAll(file.get(), piece, path);
    return;
  }
  std::filesystem::path temporary;  // a name that nobody has: what lies beside is not ours
  for (int n = 0; temporary.empty() || std::filesystem::exists(temporary, error); ++n) {
    temporary = path;
    temporary += ".tmp-" + std::to_string(getpid()) + "-" + std::to_string(n);
  }
  const FileDescriptor file(temporary, O_WRONLY | O_CREAT | O_EXCL, 0644, &path);
  try {
    for (const auto& piece : pieces) WriteAll(file.get(), piece, path);
    if (fsync(file.get()) != 0) Fail("cannot write {}: {}", path.string(), std::strerror(errno));
    if (rename(temporary.c_str(), path.c_str()) != 0) {
      Fail("cannot rename {} to {}: {}", temporary.string(), path.string(), std::strerror(errno));
    }
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
  SyncFolder(path.parent_path());
}

void WriteFileAtomically(const std::filesystem::path& path, std::string_view content) {
  const auto bytes = std::as_bytes(std::span(content.data(), content.size()));
  const std::span<const std::byte> pieces[] = {bytes};
  WriteFileAtomically(path, pieces);
}

}  // namespace parax
