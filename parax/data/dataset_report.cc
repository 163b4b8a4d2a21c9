#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>

#include "parax/base/error.h"
#include "parax/data/dataset_internal.h"

namespace parax {
namespace {

constexpr size_t kNamed = 5;  // of many broken files

int64_t CountIn(const std::unordered_set<uint64_t>& known, const Split& split) {
  int64_t count = 0;
  for (int64_t i = 0; i < split.size(); ++i) count += known.contains(split.fingerprint(i)) ? 1 : 0;
  return count;
}

}  // namespace

void FindCopies(Dataset& data) {
  std::unordered_set<uint64_t> known;
  known.reserve(static_cast<size_t>(data.train.size()));
  for (int64_t i = 0; i < data.train.size(); ++i) {
    if (!known.insert(data.train.fingerprint(i)).second) ++data.repeated_in_train;
  }
  data.val_in_train = CountIn(known, data.val);
  data.test_in_train = CountIn(known, data.test);
  if (data.repeated_in_train > 0) {
    data.warnings.push_back(fmt::format("{} training images are copies of another training image",
                                        data.repeated_in_train));
  }
  for (const auto& [name, count, of] : {std::tuple("validation", data.val_in_train, &data.val),
                                        std::tuple("test", data.test_in_train, &data.test)}) {
    if (count == 0) continue;
    data.warnings.push_back(
        fmt::format("{} of {} {} images are also in the training set: accuracy there says too much",
                    count, of->size(), name));
  }
}

void DescribeSplit(std::string_view name, const Split& split, Dataset& data) {
  if (split.empty()) return;
  const std::vector<int64_t> counts = split.ClassCounts(data.classes.size());
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  const auto class_name = [&](auto it) {
    return data.classes[static_cast<size_t>(it - counts.begin())];
  };
  std::string line =
      fmt::format("{}: {} images in {} classes", name, split.size(),
                  counts.size() - static_cast<size_t>(std::count(counts.begin(), counts.end(), 0)));
  if (counts.size() <= kMostListed) {
    std::vector<std::string> each;
    for (size_t i = 0; i < counts.size(); ++i) {
      each.push_back(fmt::format("{} {}", data.classes[i], counts[i]));
    }
    line += fmt::format(" ({})", fmt::join(each, ", "));
  } else {
    line +=
        fmt::format(" ({} of {} to {} of {})", *least, class_name(least), *most, class_name(most));
  }
  data.notes.push_back(line);
  if (&split == &data.train && *most >= 3 * *least) {
    data.notes.push_back(fmt::format(
        "the classes are uneven: {} has {} training images, {} has {} (class weights may help)",
        class_name(most), *most, class_name(least), *least));
  }
}

void ReportBroken(Dataset& data, bool strict) {
  if (data.other_files > 0) {
    data.notes.push_back(
        fmt::format("{} other files ignored (images are .jpg, .jpeg and .png)", data.other_files));
  }
  if (data.broken.empty()) return;
  std::vector<std::string> named;
  for (size_t i = 0; i < std::min(kNamed, data.broken.size()); ++i) {
    named.push_back(fmt::format("{} {}", data.broken[i].path, data.broken[i].reason));
  }
  const std::string line =
      fmt::format("{} broken image{}: {}{}", data.broken.size(), data.broken.size() == 1 ? "" : "s",
                  fmt::join(named, "; "), data.broken.size() > kNamed ? "; ..." : "");
  if (strict) Fail("{}", line);
  data.warnings.push_back("left out " + line);
}

}  // namespace parax
