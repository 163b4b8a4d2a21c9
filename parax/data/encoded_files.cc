#include "parax/data/encoded_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "parax/base/error.h"

namespace parax {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;  // no photograph is larger

// What is no fault of the file must not make another image take its place.
void FailOnShortage(const std::string& path) {
  if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
    Fail("cannot read {}: {}", path, std::strerror(errno));
  }
}

// Reads the whole file; empty, or what went wrong.
std::string ReadWhole(int fd, std::vector<std::byte>& out) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return std::strerror(errno);
  if (!S_ISREG(info.st_mode)) return "not a regular file";
  const auto size = static_cast<size_t>(info.st_size);
  if (size > kMostBytes) return "larger than 1 GB";
  out.resize(size);
  for (size_t done = 0; done < size;) {
    const ssize_t n = pread(fd, out.data() + done, size - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::strerror(errno);
    if (n == 0) return "cut short while it was read";
    done += static_cast<size_t>(n);
  }
  return {};
}

}  // namespace

EncodedFiles::EncodedFiles(const Split& split, size_t keep_bytes) : split_(split) {
  if (split.total_bytes() == 0 || split.total_bytes() > keep_bytes) return;
  kept_ = Arena(split.total_bytes());
  uint64_t offset = 0;
  for (int64_t i = 0; i < split.size(); ++i) {
    offsets_.push_back(offset);
    offset += split.bytes(i);
  }
  states_ = std::make_unique<std::atomic<State>[]>(offsets_.size());
}

std::span<const std::byte> EncodedFiles::Read(int64_t i, Buffer& buffer, std::string& why) {
  const auto index = static_cast<size_t>(i);
  if (!offsets_.empty() && states_[index].load(std::memory_order_acquire) == kKept) {
    return {kept_.data() + offsets_[index], split_.bytes(i)};
  }
  split_.Path(i, buffer.path);
  // O_NONBLOCK: a file replaced by a named pipe must not hang us.
  const int fd = open(buffer.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) FailOnShortage(buffer.path);
  why = fd < 0 ? std::strerror(errno) : ReadWhole(fd, buffer.bytes);
  if (fd >= 0) close(fd);
  if (!why.empty()) return {};
  // A file whose size has changed since it was indexed has no place to be kept in.
  if (!offsets_.empty() && buffer.bytes.size() == split_.bytes(i)) {
    State none = kNone;
    if (states_[index].compare_exchange_strong(none, kWriting, std::memory_order_relaxed)) {
      std::memcpy(kept_.data() + offsets_[index], buffer.bytes.data(), buffer.bytes.size());
      states_[index].store(kKept, std::memory_order_release);
    }
  }
  return buffer.bytes;
}

}  // namespace parax
