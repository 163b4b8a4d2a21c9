#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "parax/base/error.h"
#include "parax/base/parallel_internal.h"
#include "parax/data/index.h"

namespace parax {
namespace {

namespace fs = std::filesystem;
using FolderId = std::pair<dev_t, ino_t>;

// A folder changed this shortly before it was read may change again within its time stamp's
// granularity (2 s on FAT), unseen: such a stamp is not kept.
constexpr int64_t kSettled = 2'000'000'000;

int64_t Now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

struct Walk {
  const fs::path& root;
  std::unordered_map<std::string_view, FolderRecord*> known;
  std::mutex mutex;  // guards notes
  std::vector<std::string>& notes;

  void Note(std::string line) {
    const std::lock_guard lock(mutex);
    notes.push_back(std::move(line));
  }
};

void ReadFolder(const fs::path& path, FolderRecord& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.starts_with('.')) continue;
    std::error_code unknown;
    if (it->is_directory(unknown)) {
      folder.folders.push_back(std::move(name));
    } else if (IsImageName(name)) {
      names.push_back(std::move(name));
    } else if (unknown) {  // a link to a folder of images, perhaps
      if (unknown == std::errc::no_such_file_or_directory) {
        Fail("{} is a link that leads nowhere: mend or remove it", it->path().string());
      }
      Fail("cannot read {}: {}", it->path().string(), unknown.message());
    } else {
      ++folder.other_files;
    }
  }
  if (error) Fail("cannot read folder {}: {}", path.string(), error.message());
  std::sort(folder.folders.begin(), folder.folders.end());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    folder.files.push_back(
        {.name = static_cast<uint32_t>(folder.names.size()), .status = FileStatus::kUnreadable});
    folder.names.append(name).push_back('\0');
  }
  if (folder.names.size() > UINT32_MAX) Fail("{} holds too many files", path.string());
}

// The root and the folders between it and `top`: no link may lead back to them.
std::vector<FolderId> FoldersAbove(const fs::path& root, const fs::path& top) {
  std::vector<FolderId> ids;
  fs::path path = root;
  for (const fs::path& name : top) {
    struct stat info {};
    if (stat(path.c_str(), &info) == 0) ids.emplace_back(info.st_dev, info.st_ino);
    path /= name;
  }
  return ids;
}

// Appends the folder and what is below it to `out`. A record of ours with all files unread, or a
// known one (marked in `reused`).
void ListTree(Walk& walk, std::string relative, std::vector<FolderId>& above, Index& out,
              std::vector<bool>& reused) {
  const fs::path path = walk.root / relative;
  struct stat info {};
  // A known folder is not read again, so that it can be is asked here.
  if (stat(path.c_str(), &info) != 0 ||
      faccessat(AT_FDCWD, path.c_str(), R_OK | X_OK, AT_EACCESS) != 0) {
    Fail("cannot read folder {}: {}", path.string(), std::strerror(errno));
  }
  const FolderId id{info.st_dev, info.st_ino};
  if (std::find(above.begin(), above.end(), id) != above.end()) {
    walk.Note(fmt::format("{} leads back to a folder that holds it: left out", path.string()));
    return;
  }
  const int64_t modified = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
  const auto known = walk.known.find(relative);
  const bool unchanged = known != walk.known.end() && known->second->modified == modified;
  FolderRecord folder;
  if (unchanged) {
    folder = *known->second;
  } else {
    folder.path = relative;
    if (modified + kSettled < Now()) folder.modified = modified;
    ReadFolder(path, folder);
  }
  const std::vector<std::string> below = folder.folders;
  out.push_back(std::move(folder));
  reused.push_back(unchanged);
  above.push_back(id);
  for (const std::string& name : below) ListTree(walk, relative + "/" + name, above, out, reused);
  above.pop_back();
}

}  // namespace

Index ScanFolders(const fs::path& root, const std::vector<std::string>& tops, Index known,
                  bool& changed, std::vector<std::string>& notes) {
  Walk walk{.root = root, .known = {}, .mutex = {}, .notes = notes};
  for (FolderRecord& folder : known) {
    if (folder.modified != 0) walk.known[folder.path] = &folder;
  }

  std::vector<Index> trees(tops.size());
  std::vector<std::vector<bool>> reused(tops.size());
  ParallelFor(tops.size(), [&](size_t i) {
    std::vector<FolderId> above = FoldersAbove(root, tops[i]);
    ListTree(walk, tops[i], above, trees[i], reused[i]);
  });

  Index index;
  std::vector<std::pair<uint32_t, uint32_t>> unread;  // folder, file
  changed = false;
  for (size_t i = 0; i < trees.size(); ++i) {
    for (size_t j = 0; j < trees[i].size(); ++j) {
      changed = changed || !reused[i][j];
      const auto& files = trees[i][j].files;
      for (size_t k = 0; k < files.size(); ++k) {
        if (!reused[i][j] || files[k].status != FileStatus::kGood) {
          unread.emplace_back(static_cast<uint32_t>(index.size()), static_cast<uint32_t>(k));
        }
      }
      index.push_back(std::move(trees[i][j]));
    }
  }
  changed = changed || index.size() != known.size();

  std::atomic<bool> repaired = false;
  ParallelFor(unread.size(), [&](size_t i) {
    FolderRecord& folder = index[unread[i].first];
    FileRecord& file = folder.files[unread[i].second];
    const Probe probe = ProbeFile(root / folder.path / folder.name(file));
    if (probe.status != file.status) repaired.store(true, std::memory_order_relaxed);
    file.status = probe.status;
    file.bytes = probe.bytes;
    file.fingerprint = probe.fingerprint;
  });
  changed = changed || repaired;
  return index;
}

std::vector<std::string> FolderNames(const fs::path& folder) {
  FolderRecord record;
  ReadFolder(folder, record);
  return std::move(record.folders);
}

}  // namespace parax
