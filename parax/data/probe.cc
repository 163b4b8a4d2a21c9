#include "parax/data/probe.h"

#include <fcntl.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>

#include "parax/data/hash.h"

namespace parax {
namespace {

constexpr size_t kHead = 16 << 10;
constexpr size_t kTail = 4 << 10;

// The file, its beginning already read.
struct OpenFile {
  int fd = -1;
  uint64_t size = 0;
  std::array<unsigned char, kHead + kTail> head;
  size_t head_size = 0;

  bool Read(uint64_t offset, void* out, size_t n) const {
    if (offset > size || n > size - offset) return false;
    if (offset + n <= head_size) {
      std::memcpy(out, head.data() + offset, n);
      return true;
    }
    return pread(fd, out, n, static_cast<off_t>(offset)) == static_cast<ssize_t>(n);
  }
};

// Walks a JPEG's segments to its frame header (ITU T.81, annex B); `end` is the offset behind it.
FileStatus CheckJpegHeader(const OpenFile& file, uint64_t& end) {
  uint64_t offset = 2;
  for (;;) {
    unsigned char b[10];
    if (!file.Read(offset, b, 2)) return FileStatus::kTruncated;
    if (b[0] != 0xFF) return FileStatus::kBadHeader;
    const unsigned marker = b[1];
    if (marker == 0xFF) {  // fill byte
      ++offset;
      continue;
    }
    if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD7)) {  // markers without a segment
      offset += 2;
      continue;
    }
    if (marker == 0xD8 || marker == 0xD9 || marker == 0xDA) return FileStatus::kBadHeader;
    if (!file.Read(offset + 2, b, 2)) return FileStatus::kTruncated;
    const unsigned length = b[0] << 8 | b[1];
    if (length < 2) return FileStatus::kBadHeader;
    const bool is_frame =
        marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
    if (is_frame) {
      if (!file.Read(offset + 4, b, 6)) return FileStatus::kTruncated;
      const bool decodable = marker <= 0xC2 || marker == 0xC9 || marker == 0xCA;
      if (!decodable || b[0] != 8) return FileStatus::kUnsupported;
      const bool sized = (b[1] | b[2]) != 0 && (b[3] | b[4]) != 0;
      const bool coloured = b[5] == 1 || b[5] == 3 || b[5] == 4;
      end = offset + 2 + length;
      return sized && coloured ? FileStatus::kGood : FileStatus::kBadHeader;
    }
    offset += 2 + length;
  }
}

FileStatus CheckPngHeader(const OpenFile& file) {
  unsigned char b[16];  // the IHDR chunk: length, type, width, height
  if (!file.Read(8, b, sizeof b)) return FileStatus::kTruncated;
  const auto any = [&](int at) { return (b[at] | b[at + 1] | b[at + 2] | b[at + 3]) != 0; };
  return std::memcmp(b + 4, "IHDR", 4) == 0 && any(8) && any(12) ? FileStatus::kGood
                                                                 : FileStatus::kBadHeader;
}

// Whether the mark stands in the last bytes, or else anywhere behind `from`: phones append films
// and maps. Compressed JPEG data cannot hold the end mark by chance (0xFF is always escaped in it).
bool HasEndMark(const OpenFile& file, uint64_t from, std::string_view mark) {
  const uint64_t tail_from = std::max(from, file.size - std::min<uint64_t>(file.size, kTail));
  for (uint64_t start : {tail_from, from}) {
    if (start >= file.size) return false;
    std::string bytes(file.size - start, '\0');
    if (!file.Read(start, bytes.data(), bytes.size())) return false;
    if (bytes.rfind(mark) != std::string::npos) return true;
  }
  return false;
}

FileStatus Check(const OpenFile& file) {
  using std::string_view_literals::operator""sv;
  const std::string_view head(reinterpret_cast<const char*>(file.head.data()), file.head_size);
  if (head.empty()) return FileStatus::kEmpty;
  if (head.starts_with("\xFF\xD8\xFF"sv)) {
    uint64_t end = 0;
    const FileStatus status = CheckJpegHeader(file, end);
    if (status != FileStatus::kGood) return status;
    return HasEndMark(file, end, "\xFF\xD9"sv) ? FileStatus::kGood : FileStatus::kTruncated;
  }
  if (head.starts_with("\x89PNG\r\n\x1A\n"sv)) {
    const FileStatus status = CheckPngHeader(file);
    if (status != FileStatus::kGood) return status;
    return HasEndMark(file, 24, "IEND\xAE\x42\x60\x82"sv) ? FileStatus::kGood
                                                          : FileStatus::kTruncated;
  }
  return FileStatus::kNotAnImage;
}

}  // namespace

std::string_view Reason(FileStatus status) {
  switch (status) {
    case FileStatus::kGood:
      return "good";
    case FileStatus::kUnreadable:
      return "cannot be read";
    case FileStatus::kEmpty:
      return "is empty";
    case FileStatus::kNotAnImage:
      return "is neither JPEG nor PNG inside";
    case FileStatus::kBadHeader:
      return "has a broken header";
    case FileStatus::kTruncated:
      return "is cut short";
    case FileStatus::kUnsupported:
      return "is a lossless, 12-bit or hierarchical JPEG, which is not supported";
  }
  return "";
}

Probe ProbeFile(const std::filesystem::path& path) {
  Probe probe;
  OpenFile file;
  // O_NONBLOCK: opening a named pipe must not hang.
  file.fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0) return probe;
  struct stat info {};
  if (fstat(file.fd, &info) == 0 && S_ISREG(info.st_mode)) {
    file.size = probe.bytes = static_cast<uint64_t>(info.st_size);
    const size_t want =
        std::min<uint64_t>(file.size, file.size <= kHead + kTail ? kHead + kTail : kHead);
    if (pread(file.fd, file.head.data(), want, 0) == static_cast<ssize_t>(want)) {
      file.head_size = want;
      probe.status = Check(file);
      const auto bytes = std::as_bytes(std::span(file.head));
      probe.fingerprint = Hash64(bytes.first(want), file.size);
      if (want < file.size) {
        if (!file.Read(file.size - kTail, file.head.data() + kHead, kTail)) {
          probe.status = FileStatus::kUnreadable;
        }
        probe.fingerprint = Hash64(bytes.last(kTail), probe.fingerprint);
      }
    }
  }
  close(file.fd);
  return probe;
}

bool IsImageName(std::string_view file_name) {
  const size_t dot = file_name.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return false;
  const std::string extension(file_name.substr(dot + 1));
  for (const char* known : {"jpg", "jpeg", "png"}) {
    if (strcasecmp(extension.c_str(), known) == 0) return true;
  }
  return false;
}

}  // namespace parax
