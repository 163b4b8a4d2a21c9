#include "parax/data/dataset.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "parax/base/error.h"
#include "parax/base/philox.h"
#include "parax/base/text.h"
#include "parax/data/dataset_internal.h"
#include "parax/data/index.h"

namespace parax {
namespace {

namespace fs = std::filesystem;

constexpr double kHeldOut = 0.1;

// Which folders of the root hold what; "" when there is none.
struct Layout {
  std::string train, val, test;
  bool flat = false;  // the root itself holds the class folders
};

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return text;
}

Layout FindLayout(const fs::path& root, const std::vector<std::string>& folders) {
  Layout layout;
  const std::map<std::string, std::string*> meaning = {
      {"train", &layout.train}, {"training", &layout.train}, {"val", &layout.val},
      {"valid", &layout.val},   {"validation", &layout.val}, {"dev", &layout.val},
      {"test", &layout.test}};
  for (const std::string& folder : folders) {
    const auto found = meaning.find(Lower(folder));
    if (found == meaning.end()) continue;
    if (!found->second->empty()) {
      Fail("{} holds both {}/ and {}/, which mean the same: rename or remove one", root.string(),
           *found->second, folder);
    }
    *found->second = folder;
  }
  layout.flat = layout.train.empty() && layout.val.empty() && layout.test.empty();
  return layout;
}

// Class folders of the split's folder `top` ("" is the root), relative to the root.
std::vector<std::string> ClassFolders(const fs::path& root, const std::string& top) {
  std::vector<std::string> folders = FolderNames(root / top);
  if (!top.empty()) {
    for (std::string& folder : folders) folder = top + "/" + folder;
  }
  return folders;
}

std::string_view ClassOf(std::string_view path, const std::string& top) {
  if (!top.empty()) path.remove_prefix(top.size() + 1);
  return path.substr(0, path.find('/'));
}

// Turns the index into splits.
class Builder {
 public:
  Builder(const fs::path& root, const Index& index, Dataset& out)
      : root_(root), index_(index), out_(out) {}

  // Sorted names of the classes with images in train/; the others are noted. Throws where not one
  // of a class's images is good: another set of classes would be learnt than was meant.
  std::vector<std::string> TrainClasses(const std::string& top) const {
    struct Files {
      int64_t good = 0;
      std::string bad;  // the first one and its reason
    };
    std::map<std::string, Files, std::less<>> classes;
    for (const FolderRecord& folder : index_) {
      if (!Below(folder, top)) continue;
      Files& files = classes[std::string(ClassOf(folder.path, top))];
      for (const FileRecord& file : folder.files) {
        if (IsGood(file)) ++files.good;
        if (!IsGood(file) && files.bad.empty()) {
          files.bad = fmt::format("{} {}", (root_ / folder.path / folder.name(file)).string(),
                                  Reason(file.status));
        }
      }
    }
    std::vector<std::string> names, without;
    for (const auto& [name, files] : classes) {
      if (files.good == 0 && !files.bad.empty()) {
        Fail("no image of class {} can be read ({}): mend or remove the folder",
             (root_ / top / name).string(), files.bad);
      }
      (files.good > 0 ? names : without).push_back(name);
    }
    if (!without.empty()) {
      out_.warnings.push_back(
          fmt::format("folders without images make no class: {}", fmt::join(without, ", ")));
    }
    return names;
  }

  Split Take(const std::string& top) {
    std::map<std::string_view, int32_t> labels;
    for (size_t i = 0; i < out_.classes.size(); ++i) {
      labels[out_.classes[i]] = static_cast<int32_t>(i);
    }
    // By label first: the classes' order may be a checkpoint's. Within one: the index's order.
    std::vector<std::pair<int32_t, const FolderRecord*>> folders;
    for (const FolderRecord& folder : index_) {
      if (!Below(folder, top)) continue;
      out_.other_files += folder.other_files;
      const auto label = labels.find(ClassOf(folder.path, top));
      if (label != labels.end()) {
        folders.emplace_back(label->second, &folder);
      } else if (!folder.files.empty()) {
        FailUnknown(ClassOf(folder.path, top), top);
      }
    }
    std::stable_sort(folders.begin(), folders.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    Split split;
    for (const auto& [label, folder] : folders) AddFolder(*folder, label, split);
    return split;
  }

 private:
  static bool IsGood(const FileRecord& file) { return file.status == FileStatus::kGood; }
  static bool Below(const FolderRecord& folder, const std::string& top) {
    return top.empty() || (folder.path.size() > top.size() && folder.path.starts_with(top) &&
                           folder.path[top.size()] == '/');
  }

  void AddFolder(const FolderRecord& folder, int32_t label, Split& split) {
    const int32_t number = split.AddFolder((root_ / folder.path).string());
    for (const FileRecord& file : folder.files) {
      if (IsGood(file)) {
        split.AddFile(number, folder.name(file), label, file.bytes, file.fingerprint);
      } else {
        out_.broken.push_back(
            {(root_ / folder.path / folder.name(file)).string(), Reason(file.status)});
      }
    }
  }

  [[noreturn]] void FailUnknown(std::string_view name, const std::string& top) const {
    const std::string nearest = Nearest(name, out_.classes);
    const std::span<const std::string> named(out_.classes.data(),
                                             std::min(kMostListed, out_.classes.size()));
    Fail("{} is none of the classes learnt ({}{}); rename or remove the folder{}",
         (root_ / top / name).string(), fmt::join(named, ", "),
         named.size() < out_.classes.size() ? ", ..." : "",
         nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest));
  }

  const fs::path& root_;
  const Index& index_;
  Dataset& out_;
};

// Moves `share` of each class from train to val. Which images: those whose content, keyed by the
// seed, draws the lowest numbers. So the choice outlives renaming and additions of a few files, and
// copies of an image mostly land on the same side. At least one image of a class stays, and of two
// or more at least one goes.
void HoldOut(double share, uint64_t seed, Split& train, Split& val) {
  Split rest;
  rest.AddFoldersFrom(train);
  val.AddFoldersFrom(train);
  for (int64_t begin = 0, end = 0; begin < train.size(); begin = end) {
    std::vector<std::pair<uint64_t, int64_t>> draws;
    for (end = begin; end < train.size() && train.label(end) == train.label(begin); ++end) {
      RandomStream random(seed, RandomUse::kSplit, 0, train.fingerprint(end));
      draws.emplace_back(random.Next64(), end);
    }
    const int64_t n = end - begin;
    int64_t take = std::llround(share * static_cast<double>(n));
    if (share > 0 && share < 1) take = n < 2 ? 0 : std::clamp<int64_t>(take, 1, n - 1);
    std::sort(draws.begin(), draws.end());
    std::vector<bool> taken(static_cast<size_t>(n));
    for (int64_t i = 0; i < take; ++i) {
      taken[static_cast<size_t>(draws[static_cast<size_t>(i)].second - begin)] = true;
    }
    for (int64_t i = begin; i < end; ++i) {
      (taken[static_cast<size_t>(i - begin)] ? val : rest).AddFrom(train, i);
    }
  }
  train = std::move(rest);
}

Index OpenIndex(const fs::path& root, const std::vector<std::string>& tops, bool keep,
                Dataset& data) {
  bool changed = false;
  Index index =
      ScanFolders(root, tops, keep ? LoadIndex(root, data.notes) : Index{}, changed, data.notes);
  if (keep && changed) StoreIndex(root, index, data.notes);
  return index;
}

}  // namespace

Dataset OpenDataset(const fs::path& root, const DatasetOptions& options) {
  const bool fixed = !options.classes.empty();
  if (options.val_split && !(*options.val_split >= 0 && *options.val_split <= 1)) {
    FailUsage("a validation share of {} cannot be: it lies between 0 and 1", *options.val_split);
  }
  std::error_code error;
  if (!fs::is_directory(root, error)) {
    Fail("{} is not a folder{}", root.string(), error ? ": " + error.message() : "");
  }
  const Layout layout = FindLayout(root, FolderNames(root));
  if (layout.train.empty() && !layout.flat && !fixed) {
    Fail("{} has no train/ folder; expected train/<class>/<image>, or class folders directly in it",
         root.string());
  }
  Dataset data;
  data.root = root;
  data.flat = layout.flat;
  const bool has_train = layout.flat || !layout.train.empty();
  const bool split_asked = options.hold_out && options.val_split.has_value();
  const bool use_val = !layout.val.empty() && !(split_asked && has_train);
  std::vector<std::string> tops;
  const auto want = [&](const std::string& top) {
    for (std::string& folder : ClassFolders(root, top)) tops.push_back(std::move(folder));
  };
  if (has_train) want(layout.train);
  if (use_val) want(layout.val);
  if (!layout.test.empty()) want(layout.test);

  const Index index = OpenIndex(root, tops, options.keep_index, data);
  Builder builder(root, index, data);
  data.classes = fixed ? options.classes : builder.TrainClasses(layout.train);
  if (data.classes.empty()) {
    Fail("{} holds no class folders with images; expected train/<class>/<image>.jpg or .png",
         root.string());
  }
  if (has_train) data.train = builder.Take(layout.train);
  const size_t broken = data.broken.size();
  if (use_val) data.val = builder.Take(layout.val);
  if (use_val && data.val.empty() && !fixed) {
    Fail("{} holds no image that can be read{}: mend it, or remove it to hold out some of train/",
         (root / layout.val).string(),
         data.broken.size() > broken
             ? fmt::format(" ({} {})", data.broken[broken].path, data.broken[broken].reason)
             : " in a class folder");
  }
  if (!layout.test.empty()) data.test = builder.Take(layout.test);
  ReportBroken(data, options.strict);

  const double share = options.hold_out ? options.val_split.value_or(kHeldOut) : 0;
  data.held_out = has_train && !use_val && share > 0;
  if (data.held_out) {
    HoldOut(share, options.seed, data.train, data.val);
    data.notes.push_back(
        fmt::format("{:g} % of each class is held out for validation ({}, seed {})", 100 * share,
                    options.val_split ? "as asked" : "there is no val/ folder", options.seed));
  }
  if (!use_val && !layout.val.empty()) {
    data.notes.push_back(fmt::format("{}/ is not used: a validation share was given", layout.val));
  }
  if (!layout.test.empty() && data.test.empty()) {
    data.warnings.push_back(fmt::format(
        "{}/ is not used: it holds no image that can be read in a class folder", layout.test));
  } else if (!layout.test.empty()) {
    data.notes.push_back(
        fmt::format("{}/ is evaluated at the end only; it has no part in choosing the best epoch",
                    layout.test));
  }
  DescribeSplit("train", data.train, data);
  DescribeSplit("validation", data.val, data);
  DescribeSplit("test", data.test, data);
  FindCopies(data);
  return data;
}

}  // namespace parax
