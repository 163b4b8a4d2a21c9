#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace parax {

// A list of image files with their labels, ordered by class, then folder, then name. Names lie in
// one block: a million files take about 40 MB.
class Split {
 public:
  int64_t size() const { return static_cast<int64_t>(files_.size()); }
  bool empty() const { return files_.empty(); }
  int32_t label(int64_t i) const { return files_[static_cast<size_t>(i)].label; }
  uint64_t bytes(int64_t i) const { return files_[static_cast<size_t>(i)].bytes; }
  uint64_t fingerprint(int64_t i) const { return files_[static_cast<size_t>(i)].fingerprint; }
  uint64_t total_bytes() const { return total_bytes_; }
  std::string Path(int64_t i) const;
  void Path(int64_t i, std::string& out) const;  // reuses out's memory

  // Returns the folder's number for AddFile.
  int32_t AddFolder(std::string path);
  void AddFile(int32_t folder, std::string_view name, int32_t label, uint64_t bytes = 0,
               uint64_t fingerprint = 0);
  void AddFrom(const Split& other, int64_t i);  // other's folders must have been taken over
  void AddFoldersFrom(const Split& other) { folders_ = other.folders_; }

  std::vector<int64_t> ClassCounts(size_t classes) const;

 private:
  struct File {
    uint64_t name;  // where it begins in names_
    uint64_t bytes;
    uint64_t fingerprint;
    int32_t folder;
    int32_t label;
  };
  std::vector<std::string> folders_;
  std::string names_;  // each ended by NUL
  std::vector<File> files_;
  uint64_t total_bytes_ = 0;
};

// Of what training sees in a split: its images' labels, sizes and fingerprints in order, not where
// they lie. Hexadecimal; "" of an empty split.
std::string DataDigest(const Split& split);

// The smallest fingerprints of a split's images, at most `most`, sorted: which of other images it
// holds can be told from them for those whose fingerprint is no greater than the last (all, where
// the split has no more than `most`).
std::vector<uint64_t> Sketch(const Split& split, size_t most);

// Files given one by one (prediction); every label is -1.
Split SplitFromFiles(const std::vector<std::string>& paths);

struct DatasetOptions {
  // Share of each class held out of train/ for choosing the best epoch. Unset: 10 % when there is
  // no val/ folder, else none; set: that share, and val/ is not used.
  std::optional<double> val_split = std::nullopt;
  bool hold_out = true;  // false: nothing is held out of train/; val/ is used where there is one
  uint64_t seed = 0;
  // A checkpoint's classes, in its order. Then train/ may be missing or lack some of them; a folder
  // named otherwise is an error. Empty: the names of the folders in train/, sorted.
  std::vector<std::string> classes = {};
  bool strict = false;     // a broken file is an error
  bool keep_index = true;  // read and write the index file
};

struct BrokenFile {
  std::string path;
  std::string_view reason;
};

struct Dataset {
  std::filesystem::path root;
  std::vector<std::string> classes;  // a label is an index into these
  Split train, val, test;            // val: for selection; test: only for the end
  bool held_out = false;             // val was taken out of train
  bool flat = false;                 // the root itself holds the class folders
  std::vector<BrokenFile> broken;    // left out of the splits
  int64_t other_files = 0;           // not named like an image
  int64_t val_in_train = 0;          // images of val (test) whose content is also in train
  int64_t test_in_train = 0;
  int64_t repeated_in_train = 0;      // images of train that train already holds
  std::vector<std::string> notes;     // what was found, a line each, for the log
  std::vector<std::string> warnings;  // what may need the user's eye
};

// Reads a folder of class folders; the rules are those of docs/data-folders.md. Throws Error (or
// UsageError for options that can't be), one line saying what is wrong and what would be right.
Dataset OpenDataset(const std::filesystem::path& root, const DatasetOptions& options = {});

}  // namespace parax
