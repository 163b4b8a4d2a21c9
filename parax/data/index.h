#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parax/data/probe.h"

namespace parax {

struct FileRecord {
  uint32_t name = 0;  // where the NUL-terminated name begins in FolderRecord::names
  FileStatus status = FileStatus::kGood;
  uint64_t bytes = 0;
  uint64_t fingerprint = 0;  // see Probe
};

// What was found directly in one folder.
struct FolderRecord {
  std::string path;                  // relative to the data set's root
  int64_t modified = 0;              // nanoseconds; 0: read it again next time
  std::vector<std::string> folders;  // names of the folders in it, sorted
  std::string names;                 // of its files, each ended by NUL
  std::vector<FileRecord> files;     // of image files, sorted by name
  uint32_t other_files = 0;          // neither hidden nor named like an image

  std::string_view name(const FileRecord& file) const { return names.c_str() + file.name; }
};

using Index = std::vector<FolderRecord>;

// Everything below the folders `tops` (relative to `root`), depth first, in name order. A folder
// that has not changed since `known` was made is taken from there without reading it, but for its
// broken files: those are looked at again, because replacing a file's content does not touch its
// folder. Sets `changed` when the result differs from `known`. Symbolic links are followed; one
// that leads to a folder it lies in is left out, with a note. Runs on all cores (oneTBB).
Index ScanFolders(const std::filesystem::path& root, const std::vector<std::string>& tops,
                  Index known, bool& changed, std::vector<std::string>& notes);

// Names of the folders in a folder, hidden ones left out, sorted. Throws Error when it cannot be
// read.
std::vector<std::string> FolderNames(const std::filesystem::path& folder);

// The index kept between runs: <root>/parax-index.bin, or, where that cannot be written,
// $XDG_CACHE_HOME/parax/index-<hash of root>.bin (default ~/.cache).
inline constexpr const char* kIndexFileName = "parax-index.bin";
std::string SerializeIndex(const Index& index);
std::optional<Index> ParseIndex(std::string_view file);  // nullopt: damaged, or another version
// The part behind the check sum; any bytes are safe.
std::optional<Index> ParseIndexPayload(std::string_view payload);
Index LoadIndex(const std::filesystem::path& root, std::vector<std::string>& notes);
void StoreIndex(const std::filesystem::path& root, const Index& index,
                std::vector<std::string>& notes);

}  // namespace parax
