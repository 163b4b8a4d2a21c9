#include "parax/data/index.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "image_folder.h"
#include "parax/base/file.h"
#include "parax/data/dataset.h"

namespace parax {
namespace {

namespace fs = std::filesystem;

Index Scan(const fs::path& root, Index known, bool& changed) {
  std::vector<std::string> notes;
  return ScanFolders(root, FolderNames(root), std::move(known), changed, notes);
}

TEST(ProbeTest, TellsWhatIsWrong) {
  const TemporaryFolder folder;
  const auto status = [&](const std::string& content) {
    folder.Write("file", content);
    return ProbeFile(folder / "file").status;
  };
  const std::string good = SmallJpeg("abc");
  EXPECT_EQ(status(good), FileStatus::kGood);
  EXPECT_EQ(status(""), FileStatus::kEmpty);
  EXPECT_EQ(status("hello, I am a text\n"), FileStatus::kNotAnImage);
  EXPECT_EQ(status(good.substr(0, good.size() - 1)), FileStatus::kTruncated);
  EXPECT_EQ(status(good.substr(0, 10)), FileStatus::kTruncated);
  EXPECT_EQ(status("\xFF\xD8\xFF\xD9"), FileStatus::kBadHeader);
  std::string twelve_bit = good;
  twelve_bit[6] = 12;
  EXPECT_EQ(status(twelve_bit), FileStatus::kUnsupported);
  EXPECT_EQ(ProbeFile(folder / "none").status, FileStatus::kUnreadable);
  EXPECT_EQ(ProbeFile(folder.path()).status, FileStatus::kUnreadable);
  ASSERT_EQ(mkfifo((folder / "pipe.jpg").c_str(), 0600), 0);
  EXPECT_EQ(ProbeFile(folder / "pipe.jpg").status, FileStatus::kUnreadable);
}

TEST(ProbeTest, SeesTheWholeOfLongFiles) {
  const TemporaryFolder folder;
  const std::string thumbnail = std::string("\xFF\xE1\xF0\x00", 4) + std::string(0xF000 - 2, 'e');
  std::string content = SmallJpeg(std::string(100'000, 'p'));
  content.insert(2, thumbnail);  // the frame header lies behind the first 16 KB
  const auto probe = [&](const std::string& bytes) {
    folder.Write("file", bytes);
    return ProbeFile(folder / "file");
  };
  const Probe whole = probe(content);
  EXPECT_EQ(whole.status, FileStatus::kGood);
  EXPECT_EQ(whole.bytes, content.size());
  EXPECT_EQ(probe(content.substr(0, content.size() / 2)).status, FileStatus::kTruncated);
  EXPECT_EQ(probe(content + std::string(50'000, 'f')).status, FileStatus::kGood);  // a film behind
  std::string other_end = content;
  other_end[content.size() - 100] = 'q';
  EXPECT_NE(probe(other_end).fingerprint, whole.fingerprint);
  std::string other_head = content;
  other_head[100] = 'q';
  EXPECT_NE(probe(other_head).fingerprint, whole.fingerprint);
}

TEST(IndexTest, SurvivesTheRoundTrip) {
  const TemporaryFolder folder;
  folder.Write("a/1.jpg", SmallJpeg("1"));
  folder.Write("a/deep/2.PNG", "no");
  folder.Write("b/3.jpeg", SmallJpeg("3"));
  folder.Write("b/readme.txt", "x");
  folder.Settle();
  bool changed = false;
  const Index index = Scan(folder.path(), {}, changed);
  EXPECT_TRUE(changed);
  const auto parsed = ParseIndex(SerializeIndex(index));
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(SerializeIndex(*parsed), SerializeIndex(index));
  ASSERT_EQ(parsed->size(), 3u);
  EXPECT_EQ((*parsed)[1].path, "a/deep");
  EXPECT_EQ((*parsed)[1].files[0].status, FileStatus::kNotAnImage);
  EXPECT_EQ((*parsed)[2].name((*parsed)[2].files[0]), "3.jpeg");
  EXPECT_EQ((*parsed)[2].other_files, 1u);
}

TEST(IndexTest, AnyDamageIsSeen) {
  const TemporaryFolder folder;
  folder.Write("a/1.jpg", SmallJpeg("1"));
  folder.Write("b/2.jpg", SmallJpeg("2"));
  bool changed = false;
  const std::string good = SerializeIndex(Scan(folder.path(), {}, changed));
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x41);
    EXPECT_FALSE(ParseIndex(bad).has_value()) << "byte " << i;
    EXPECT_FALSE(ParseIndex(good.substr(0, i)).has_value()) << "cut at " << i;
    // Behind the check sum nothing may crash or allocate wildly, whatever it makes of it.
    if (i >= 16) {
      for (int value : {0, 0x7f, 0xff}) {
        bad[i] = static_cast<char>(value);
        (void)ParseIndexPayload(std::string_view(bad).substr(16));
      }
    }
  }
}

TEST(IndexTest, UnchangedFoldersAreNotReadAgain) {
  const TemporaryFolder folder;
  folder.Write("a/1.jpg", SmallJpeg("1"));
  folder.Write("b/2.jpg", SmallJpeg("2"));
  folder.Settle();
  bool changed = false;
  Index index = Scan(folder.path(), {}, changed);
  index[0].files[0].fingerprint = 42;  // only a second look could correct it
  Index again = Scan(folder.path(), index, changed);
  EXPECT_FALSE(changed);
  EXPECT_EQ(again[0].files[0].fingerprint, 42u);

  folder.Write("a/0.jpg", SmallJpeg("0"));  // touches folder a, not b
  index[1].files[0].fingerprint = 43;
  again = Scan(folder.path(), index, changed);
  EXPECT_TRUE(changed);
  ASSERT_EQ(again[0].files.size(), 2u);
  EXPECT_NE(again[0].files[1].fingerprint, 42u);
  EXPECT_EQ(again[1].files[0].fingerprint, 43u);
}

TEST(IndexTest, AFolderJustWrittenIsReadAgain) {
  const TemporaryFolder folder;
  folder.Write("a/1.jpg", SmallJpeg("1"));
  bool changed = false;
  const Index index = Scan(folder.path(), {}, changed);
  EXPECT_EQ(index[0].modified, 0);
}

TEST(IndexTest, ABrokenFileRepairedInPlaceIsSeen) {
  const TemporaryFolder folder;
  folder.Write("a/1.jpg", "");
  folder.Settle();
  bool changed = false;
  const Index index = Scan(folder.path(), {}, changed);
  EXPECT_EQ(index[0].files[0].status, FileStatus::kEmpty);
  folder.Write("a/1.jpg", SmallJpeg("1"));  // does not touch the folder's time
  EXPECT_EQ(Scan(folder.path(), index, changed)[0].files[0].status, FileStatus::kGood);
  EXPECT_TRUE(changed);
}

TEST(IndexTest, FollowsLinksAndEndsOnLoops) {
  const TemporaryFolder folder;
  folder.Write("real/a/1.jpg", SmallJpeg("1"));
  folder.Write("root/b/2.jpg", SmallJpeg("2"));
  fs::create_directory_symlink(folder / "real/a", folder / "root/a");
  fs::create_directory_symlink(folder / "root/b", folder / "root/b/again");
  bool changed = false;
  std::vector<std::string> notes;
  const Index index = ScanFolders(folder / "root", {"a", "b"}, {}, changed, notes);
  ASSERT_EQ(index.size(), 2u);
  EXPECT_EQ(index[0].files.size(), 1u);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("leads back"), std::string::npos);
}

TEST(IndexTest, NoLinkLeadsBackToTheRootOrASplit) {
  const TemporaryFolder folder;
  folder.Write("train/a/1.jpg", SmallJpeg("1"));
  folder.Write("train/b/2.jpg", SmallJpeg("2"));
  fs::create_directory_symlink("..", folder / "train/a/split");
  fs::create_directory_symlink("../..", folder / "train/b/root");
  bool changed = false;
  std::vector<std::string> notes;
  const Index index = ScanFolders(folder.path(), {"train/a", "train/b"}, {}, changed, notes);
  EXPECT_EQ(index.size(), 2u);
  EXPECT_EQ(notes.size(), 2u);
}

TEST(IndexFileTest, IsKeptInTheRootAndDamageIsRepaired) {
  const TemporaryFolder folder;
  for (int i = 0; i < 3; ++i)
    folder.Write("train/a/" + std::to_string(i) + ".jpg", SmallJpeg(std::to_string(i)));
  folder.Settle();
  const Dataset first = OpenDataset(folder.path(), {.val_split = 0.0});
  const fs::path file = folder / kIndexFileName;
  ASSERT_TRUE(fs::exists(file));
  const std::string good = ReadFile(file);
  EXPECT_EQ(OpenDataset(folder.path(), {.val_split = 0.0}).train.size(), 3);

  folder.Write(kIndexFileName, good.substr(0, good.size() / 2));
  const Dataset repaired = OpenDataset(folder.path(), {.val_split = 0.0});
  EXPECT_EQ(repaired.train.size(), 3);
  EXPECT_NE(repaired.notes.at(0).find("damaged"), std::string::npos);
  EXPECT_EQ(ReadFile(file), good);
}

TEST(IndexFileTest, GoesToTheCacheFolderWhenTheRootIsReadOnly) {
  const TemporaryFolder folder, cache;
  // A folder in the file's place refuses it also to root, whom no permission stops.
  fs::create_directories(folder / kIndexFileName / "x");
  folder.Write("train/a/1.jpg", SmallJpeg("1"));
  folder.Settle();
  ASSERT_EQ(setenv("XDG_CACHE_HOME", cache.path().c_str(), 1), 0);
  (void)OpenDataset(folder.path(), {.val_split = 0.0});
  std::vector<std::string> notes;
  const Index kept = LoadIndex(folder.path(), notes);
  unsetenv("XDG_CACHE_HOME");
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].path, "train/a");
}

}  // namespace
}  // namespace parax
