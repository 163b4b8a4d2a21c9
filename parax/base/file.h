#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace parax {

// The whole of a regular file. Throws Error naming the path when it cannot be read, is none (a
// device may never end) or is larger than `max_bytes`.
std::string ReadFile(const std::filesystem::path& path, size_t max_bytes = size_t{1} << 32);

// A file mapped read-only for as long as the object lives.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);  // throws Error naming the path
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A lock file, made when it is not there; held as long as the object lives, and let go of by the
// system however the process ends.
class FileLock {
 public:
  // Throws Error when somebody else holds it: "<what> is in use by another process".
  FileLock(const std::filesystem::path& path, std::string_view what);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_ = -1;
};

// Writes the pieces one after another to `path`, and fsyncs file and folder: either the whole new
// content is there afterwards (by way of a temporary name and rename), or the old, also after a
// crash or on a full disk. Throws Error naming path and cause.
void WriteFileAtomically(const std::filesystem::path& path,
                         std::span<const std::span<const std::byte>> pieces);
void WriteFileAtomically(const std::filesystem::path& path, std::string_view content);

// Where what can be made again is kept between runs: parax/ in $XDG_CACHE_HOME or ~/.cache; empty
// when neither is known. It need not exist.
std::filesystem::path CacheFolder();

// Writes what can be made again to `file` unless something else than a regular file is there (a
// pipe must not be written to); "": does nothing. A failure costs one line: "<what> is not kept:
// ...".
void KeepInCache(const std::filesystem::path& file, std::string_view content,
                 std::string_view what);

void SyncFolder(const std::filesystem::path& folder);  // fsync of a directory

}  // namespace parax
