#include <fmt/core.h>

#include <cstring>
#include <type_traits>

#include "parax/base/error.h"
#include "parax/base/file.h"
#include "parax/data/hash.h"
#include "parax/data/index.h"

namespace parax {
namespace {

namespace fs = std::filesystem;

// File: magic, check sum of the payload, payload. The magic's last byte is the version.
constexpr std::string_view kMagic("PARAXIX\x01", 8);
constexpr size_t kHeader = 16;

template <typename T>
void Put(std::string& out, T value) {
  static_assert(std::is_integral_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);  // little-endian, as x86 is
}

void PutText(std::string& out, std::string_view text) {
  Put(out, static_cast<uint32_t>(text.size()));
  out += text;
}

// Takes values off the front; once anything is missing, `ok` stays false and zeros come.
struct Reader {
  std::string_view left;
  bool ok = true;

  std::string_view Bytes(size_t n) {
    if (n > left.size()) {
      ok = false;
      return {};
    }
    const std::string_view bytes = left.substr(0, n);
    left.remove_prefix(n);
    return bytes;
  }
  template <typename T>
  T Get() {
    T value{};
    const std::string_view bytes = Bytes(sizeof value);
    if (ok) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string_view Text() { return Bytes(Get<uint32_t>()); }
  // A count of things that take at least `least` bytes each: a wild one allocates nothing.
  size_t Count(size_t least) {
    const size_t n = Get<uint32_t>();
    if (n > left.size() / least) ok = false;
    return ok ? n : 0;
  }
};

bool ReadFolder(Reader& in, FolderRecord& folder) {
  folder.path = in.Text();
  folder.modified = in.Get<int64_t>();
  folder.other_files = in.Get<uint32_t>();
  folder.folders.resize(in.Count(4));
  for (std::string& name : folder.folders) name = in.Text();
  folder.names = in.Text();
  folder.files.resize(in.Count(21));
  for (FileRecord& file : folder.files) {
    file.name = in.Get<uint32_t>();
    const auto status = in.Get<uint8_t>();
    file.bytes = in.Get<uint64_t>();
    file.fingerprint = in.Get<uint64_t>();
    if (status > static_cast<uint8_t>(kLastFileStatus)) return false;
    file.status = static_cast<FileStatus>(status);
    // c_str() ends the last name, so every offset inside is safe; a name is never empty.
    if (file.name >= folder.names.size() || folder.names[file.name] == '\0') return false;
  }
  return in.ok;
}

fs::path CacheFolderFile(const fs::path& root) {
  const fs::path folder = CacheFolder();
  if (folder.empty()) return {};
  std::error_code ignored;
  const uint64_t key = Hash64(fs::weakly_canonical(root, ignored).string());
  return folder / fmt::format("index-{:016x}.bin", key);
}

}  // namespace

std::string SerializeIndex(const Index& index) {
  std::string payload;
  Put(payload, static_cast<uint32_t>(index.size()));
  for (const FolderRecord& folder : index) {
    PutText(payload, folder.path);
    Put(payload, folder.modified);
    Put(payload, folder.other_files);
    Put(payload, static_cast<uint32_t>(folder.folders.size()));
    for (const std::string& name : folder.folders) PutText(payload, name);
    PutText(payload, folder.names);
    Put(payload, static_cast<uint32_t>(folder.files.size()));
    for (const FileRecord& file : folder.files) {
      Put(payload, file.name);
      Put(payload, static_cast<uint8_t>(file.status));
      Put(payload, file.bytes);
      Put(payload, file.fingerprint);
    }
  }
  std::string out(kMagic);
  Put(out, Hash64(payload));
  return out + payload;
}

std::optional<Index> ParseIndexPayload(std::string_view payload) {
  Reader in{payload};
  Index index(in.Count(28));
  for (FolderRecord& folder : index) {
    if (!ReadFolder(in, folder)) return std::nullopt;
  }
  if (!in.ok || !in.left.empty()) return std::nullopt;
  return index;
}

std::optional<Index> ParseIndex(std::string_view file) {
  if (file.size() < kHeader || !file.starts_with(kMagic)) return std::nullopt;
  uint64_t sum;
  std::memcpy(&sum, file.data() + kMagic.size(), sizeof sum);
  file.remove_prefix(kHeader);
  if (Hash64(file) != sum) return std::nullopt;
  return ParseIndexPayload(file);
}

Index LoadIndex(const fs::path& root, std::vector<std::string>& notes) {
  for (const fs::path& path : {root / kIndexFileName, CacheFolderFile(root)}) {
    std::error_code ignored;
    if (path.empty() || !fs::is_regular_file(path, ignored)) continue;
    try {
      if (auto index = ParseIndex(ReadFile(path))) return *std::move(index);
      notes.push_back(fmt::format("{} is damaged or of another version: reading all folders again",
                                  path.string()));
    } catch (const Error& error) {
      notes.push_back(fmt::format("{}: reading all folders again", error.what()));
    }
  }
  return {};
}

void StoreIndex(const fs::path& root, const Index& index, std::vector<std::string>& notes) {
  const std::string content = SerializeIndex(index);
  std::string why = "no cache folder is known (HOME is not set)";
  for (const fs::path& path : {root / kIndexFileName, CacheFolderFile(root)}) {
    std::error_code none;
    if (path.empty() || (fs::exists(path, none) && !fs::is_regular_file(path, none))) continue;
    try {
      if (path.parent_path() != root) fs::create_directories(path.parent_path());
      WriteFileAtomically(path, content);
      return;
    } catch (const std::exception& error) {
      why = error.what();
    }
  }
  notes.push_back(fmt::format("the index is not kept for the next start: {}", why));
}

}  // namespace parax
