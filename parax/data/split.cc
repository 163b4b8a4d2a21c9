#include <algorithm>
#include <filesystem>
#include <span>

#include "parax/base/sha256.h"
#include "parax/data/dataset.h"

namespace parax {

std::string Split::Path(int64_t i) const {
  std::string path;
  Path(i, path);
  return path;
}

void Split::Path(int64_t i, std::string& out) const {
  const File& file = files_[static_cast<size_t>(i)];
  out = folders_[static_cast<size_t>(file.folder)];
  if (!out.empty() && out.back() != '/') out += '/';
  out += names_.c_str() + file.name;
}

int32_t Split::AddFolder(std::string path) {
  folders_.push_back(std::move(path));
  return static_cast<int32_t>(folders_.size()) - 1;
}

void Split::AddFile(int32_t folder, std::string_view name, int32_t label, uint64_t bytes,
                    uint64_t fingerprint) {
  files_.push_back({.name = names_.size(),
                    .bytes = bytes,
                    .fingerprint = fingerprint,
                    .folder = folder,
                    .label = label});
  names_.append(name).push_back('\0');
  total_bytes_ += bytes;
}

void Split::AddFrom(const Split& other, int64_t i) {
  const File& file = other.files_[static_cast<size_t>(i)];
  AddFile(file.folder, other.names_.c_str() + file.name, file.label, file.bytes, file.fingerprint);
}

std::vector<int64_t> Split::ClassCounts(size_t classes) const {
  std::vector<int64_t> counts(classes);
  for (const File& file : files_) ++counts[static_cast<size_t>(file.label)];
  return counts;
}

std::string DataDigest(const Split& split) {
  if (split.empty()) return "";
  Sha256 digest;
  for (int64_t i = 0; i < split.size(); ++i) {
    const uint64_t image[] = {static_cast<uint64_t>(split.label(i)), split.bytes(i),
                              split.fingerprint(i)};
    digest.Update(std::as_bytes(std::span(image)));
  }
  return digest.Finish().substr(0, 16);
}

std::vector<uint64_t> Sketch(const Split& split, size_t most) {
  std::vector<uint64_t> prints;
  for (int64_t i = 0; i < split.size(); ++i) prints.push_back(split.fingerprint(i));
  const auto end = prints.begin() + static_cast<ptrdiff_t>(std::min(most, prints.size()));
  std::partial_sort(prints.begin(), end, prints.end());
  prints.erase(end, prints.end());
  return prints;
}

Split SplitFromFiles(const std::vector<std::string>& paths) {
  Split split;
  std::string last;
  int32_t folder = -1;
  for (const std::string& path : paths) {
    const size_t slash = path.rfind('/');
    const std::string parent = slash == std::string::npos ? "" : path.substr(0, slash + 1);
    if (folder < 0 || parent != last) folder = split.AddFolder(parent);
    last = parent;
    split.AddFile(folder, std::string_view(path).substr(parent.size()), -1);
  }
  return split;
}

}  // namespace parax
