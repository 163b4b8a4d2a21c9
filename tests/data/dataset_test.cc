#include "parax/data/dataset.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "image_folder.h"
#include "parax/base/error.h"

namespace parax {
namespace {

namespace fs = std::filesystem;

void Fill(const TemporaryFolder& folder, const std::string& path, int count, int first = 0) {
  for (int i = first; i < first + count; ++i) {
    folder.Write(fmt::format("{}/{:03}.jpg", path, i), SmallJpeg(fmt::format("{} {}", path, i)));
  }
}

Dataset Open(const TemporaryFolder& folder, DatasetOptions options = {}) {
  options.keep_index = false;
  return OpenDataset(folder.path(), options);
}

std::set<std::string> Paths(const Split& split) {
  std::set<std::string> paths;
  for (int64_t i = 0; i < split.size(); ++i) paths.insert(split.Path(i));
  return paths;
}

bool Says(const std::vector<std::string>& lines, const std::string& text) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const auto& line) { return line.find(text) != std::string::npos; });
}

std::string ErrorOf(const TemporaryFolder& folder, const DatasetOptions& options = {}) {
  try {
    (void)Open(folder, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(DatasetTest, ClassesAreSortedAndMatchedByName) {
  const TemporaryFolder folder;
  Fill(folder, "training/zebra", 3);
  Fill(folder, "training/ant", 2);
  Fill(folder, "training/Cat", 2);
  Fill(folder, "dev/zebra", 2);  // ant and Cat are missing there: fine
  folder.Write("training/.hidden/1.jpg", SmallJpeg("h"));
  folder.Write("training/ant/.2.jpg", SmallJpeg("h"));
  folder.Write("training/ant/notes.txt", "x");
  const Dataset data = Open(folder);
  EXPECT_EQ(data.classes, (std::vector<std::string>{"Cat", "ant", "zebra"}));
  EXPECT_EQ(data.train.ClassCounts(3), (std::vector<int64_t>{2, 2, 3}));
  ASSERT_EQ(data.val.size(), 2);
  EXPECT_EQ(data.val.label(0), 2);
  EXPECT_EQ(data.val.Path(1), (folder / "dev/zebra/001.jpg").string());
  EXPECT_FALSE(data.held_out);
  EXPECT_EQ(data.other_files, 1);
}

TEST(DatasetTest, AClassUnknownToTrainIsNamed) {
  const TemporaryFolder folder;
  Fill(folder, "train/cat", 2);
  Fill(folder, "val/cats", 2);
  const std::string error = ErrorOf(folder);
  EXPECT_NE(error.find("val/cats"), std::string::npos) << error;
  EXPECT_NE(error.find("did you mean cat?"), std::string::npos) << error;
}

TEST(DatasetTest, TestIsNotUsedForSelection) {
  const TemporaryFolder folder;
  Fill(folder, "train/a", 40);
  Fill(folder, "train/b", 20);
  Fill(folder, "test/a", 5);
  const Dataset data = Open(folder);
  EXPECT_TRUE(data.held_out);
  EXPECT_EQ(data.test.size(), 5);
  EXPECT_EQ(data.val.ClassCounts(2), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(data.train.ClassCounts(2), (std::vector<int64_t>{36, 18}));
  for (const std::string& path : Paths(data.val)) {
    EXPECT_FALSE(Paths(data.train).contains(path));
    EXPECT_NE(path.find("/train/"), std::string::npos);
  }
  EXPECT_TRUE(Says(data.notes, "10 % of each class is held out"));
  EXPECT_TRUE(Says(data.notes, "test/ is evaluated at the end only"));
}

TEST(DatasetTest, TheRootMayHoldTheClasses) {
  const TemporaryFolder folder;
  Fill(folder, "a", 20);
  Fill(folder, "b", 3);
  Fill(folder, "c", 1);  // nothing to hold out
  const Dataset data = Open(folder);
  EXPECT_EQ(data.val.ClassCounts(3), (std::vector<int64_t>{2, 1, 0}));
  EXPECT_EQ(data.train.ClassCounts(3), (std::vector<int64_t>{18, 2, 1}));
}

TEST(DatasetTest, HoldOutDependsOnTheSeedOnly) {
  const TemporaryFolder folder;
  Fill(folder, "a", 50);
  EXPECT_EQ(Paths(Open(folder, {.seed = 1}).val), Paths(Open(folder, {.seed = 1}).val));
  EXPECT_NE(Paths(Open(folder, {.seed = 1}).val), Paths(Open(folder, {.seed = 2}).val));
}

TEST(DatasetTest, ValSplitOverridesTheValFolder) {
  const TemporaryFolder folder;
  Fill(folder, "train/a", 20);
  Fill(folder, "val/a", 3);
  const Dataset half = Open(folder, {.val_split = 0.5});
  EXPECT_EQ(half.val.size(), 10);
  EXPECT_TRUE(Says(half.notes, "val/ is not used"));
  const Dataset none = Open(folder, {.val_split = 0.0});
  EXPECT_EQ(none.train.size(), 20);
  EXPECT_TRUE(none.val.empty());
  EXPECT_TRUE(Open(folder, {.val_split = 1.0}).train.empty());
  EXPECT_THROW(Open(folder, {.val_split = 1.5}), UsageError);
}

TEST(DatasetTest, ACheckpointsClassesFixTheLabels) {
  const TemporaryFolder folder;
  Fill(folder, "val/a", 2);
  Fill(folder, "val/b", 1);
  const Dataset data = Open(folder, {.classes = {"b", "x", "a"}});
  EXPECT_EQ(data.val.ClassCounts(3), (std::vector<int64_t>{1, 0, 2}));
  EXPECT_EQ(data.val.label(0), 0);  // ordered by label
  EXPECT_NE(ErrorOf(folder, {.classes = {"b", "x"}}).find("val/a"), std::string::npos);
  EXPECT_NE(ErrorOf(folder).find("no train/ folder"), std::string::npos);
}

// Case L, as far as it is seen without decoding.
TEST(DatasetTest, BrokenFilesAreNamedCountedAndLeftOut) {
  const TemporaryFolder folder;
  Fill(folder, "train/a", 3);
  folder.Write("train/a/empty.jpg", "");
  folder.Write("train/a/half.jpg", SmallJpeg("cut").substr(0, 16));
  folder.Write("train/a/text.jpg", "I am a text.");
  folder.Write("train/a/Blüte – 花.jpg", SmallJpeg("flower"));
  const Dataset data = Open(folder, {.val_split = 0.0});
  EXPECT_EQ(data.train.size(), 4);
  ASSERT_EQ(data.broken.size(), 3u);
  EXPECT_TRUE(Says(data.warnings, "3 broken images"));
  EXPECT_TRUE(Says(data.warnings, "empty.jpg is empty"));
  EXPECT_TRUE(Says(data.warnings, "half.jpg is cut short"));
  EXPECT_TRUE(Says(data.warnings, "text.jpg is neither JPEG nor PNG"));
  EXPECT_TRUE(Paths(data.train).contains((folder / "train/a/Blüte – 花.jpg").string()));
  EXPECT_NE(ErrorOf(folder, {.strict = true}).find("3 broken images"), std::string::npos);
}

TEST(DatasetTest, AClassWhoseImagesAreAllBrokenIsAnError) {
  const TemporaryFolder folder;
  Fill(folder, "train/a", 3);
  Fill(folder, "val/b", 1);
  folder.Write("train/b/deep/1.jpg", "");
  fs::create_symlink("gone", folder / "train/b/deep/2.jpg");
  const std::string error = ErrorOf(folder);
  EXPECT_NE(error.find((folder / "train/b").string() + " can be read"), std::string::npos) << error;
  EXPECT_NE(error.find("train/b/deep/1.jpg is empty"), std::string::npos) << error;
  // Broken or not, what is no class of training is no class.
  fs::remove_all(folder / "train/b");
  folder.Write("val/b/000.jpg", "");
  EXPECT_NE(ErrorOf(folder).find("val/b is none of the classes learnt"), std::string::npos);
}

TEST(DatasetTest, AValFolderWithoutAReadableImageIsAnError) {
  for (const char* name : {"val/a/1.jpg", "val/a/1.txt", "val/1.jpg"}) {
    const TemporaryFolder folder;
    Fill(folder, "train/a", 10);
    folder.Write(name, "");
    EXPECT_NE(ErrorOf(folder).find((folder / "val").string() + " holds no image"),
              std::string::npos)
        << name << ": " << ErrorOf(folder);
    EXPECT_EQ(Open(folder, {.val_split = 0.2}).val.size(), 2);
  }
  const TemporaryFolder folder;  // pictures without classes, as competitions give them
  Fill(folder, "train/a", 10);
  Fill(folder, "test", 2);
  EXPECT_TRUE(Says(Open(folder).warnings, "test/ is not used"));
}

// No mode keeps root out, so another user looks.
std::string ErrorOfAnotherUser(const TemporaryFolder& folder) {
  const bool root = geteuid() == 0;
  EXPECT_EQ(root ? seteuid(65534) : 0, 0);
  std::string error;
  try {
    (void)OpenDataset(folder.path());
  } catch (const Error& e) {
    error = e.what();
  }
  EXPECT_EQ(root ? seteuid(0) : 0, 0);
  return error;
}

TEST(DatasetTest, AFolderThatCannotBeReadIsNamedAlsoWhenItIsKnown) {
  const TemporaryFolder folder;
  for (const char* name : {"train/cat", "train/dog/inner", "val/cat", "val/dog"}) {
    Fill(folder, name, 3);
  }
  folder.Settle();
  fs::permissions(folder.path(), fs::perms(0755));
  for (const bool known : {false, true}) {
    if (known) (void)OpenDataset(folder.path());  // writes the index
    for (const char* name : {"train", "train/dog", "train/dog/inner", "val", "val/dog"}) {
      for (const int mode : {0, 0444, 0111}) {
        fs::permissions(folder / name, fs::perms(mode));
        const std::string error = ErrorOfAnotherUser(folder);
        fs::permissions(folder / name, fs::perms(0755));
        EXPECT_TRUE(error.starts_with("cannot read folder " + (folder / name).string()) &&
                    error.ends_with("Permission denied"))
            << name << ": " << error;
      }
    }
  }
  fs::create_directory_symlink(folder / "gone", folder / "train/cow");
  EXPECT_NE(ErrorOf(folder).find((folder / "train/cow").string() + " is a link that leads nowhere"),
            std::string::npos);
}

TEST(DatasetTest, CopiesAreCounted) {
  const TemporaryFolder folder;
  Fill(folder, "train/a", 5);
  folder.Write("train/a/again.jpg", SmallJpeg("train/a 0"));
  folder.Write("val/a/leak.jpg", SmallJpeg("train/a 1"));
  folder.Write("val/a/new.jpg", SmallJpeg("new"));
  const Dataset data = Open(folder);
  EXPECT_EQ(data.repeated_in_train, 1);
  EXPECT_EQ(data.val_in_train, 1);
  EXPECT_TRUE(Says(data.warnings, "1 of 2 validation images are also in the training set"));
}

TEST(DatasetTest, UnevenAndEmptyClassesAreSaid) {
  const TemporaryFolder folder;
  Fill(folder, "train/few", 2);
  Fill(folder, "train/many", 9);
  fs::create_directories(folder / "train/none");
  const Dataset data = Open(folder, {.val_split = 0.0});
  EXPECT_EQ(data.classes.size(), 2u);
  EXPECT_TRUE(Says(data.warnings, "make no class: none"));
  EXPECT_TRUE(Says(data.notes, "many has 9 training images, few has 2"));
}

TEST(DatasetTest, RefusesWhatCannotBe) {
  const TemporaryFolder folder;
  EXPECT_NE(ErrorOf(folder).find("no class folders"), std::string::npos);
  Fill(folder, "val/a", 1);
  Fill(folder, "valid/a", 1);
  Fill(folder, "train/a", 1);
  EXPECT_NE(ErrorOf(folder).find("mean the same"), std::string::npos);
  EXPECT_THROW(OpenDataset(folder / "none"), Error);
}

TEST(DatasetTest, ReadsThousandsOfFiles) {
  const TemporaryFolder folder;
  for (int c = 0; c < 30; ++c) Fill(folder, fmt::format("train/class{:02}", c), 100);
  const Dataset data = Open(folder, {.val_split = 0.2});
  EXPECT_EQ(data.train.size(), 2400);
  EXPECT_EQ(data.val.size(), 600);
  EXPECT_EQ(data.repeated_in_train, 0);
}

TEST(SplitTest, TakesFilesGivenOneByOne) {
  const std::vector<std::string> paths = {"a.jpg", "x/b.jpg", "x/c.jpg", "/d.jpg", "e.jpg"};
  const Split split = SplitFromFiles(paths);
  ASSERT_EQ(split.size(), 5);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(split.Path(i), paths[static_cast<size_t>(i)]);
    EXPECT_EQ(split.label(i), -1);
  }
}

}  // namespace
}  // namespace parax
