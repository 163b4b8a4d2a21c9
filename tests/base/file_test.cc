#include "parax/base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "parax/base/error.h"

namespace parax {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string name = (fs::temp_directory_path() / "parax-file-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw Error("cannot make a temporary folder");
    folder_ = name;
  }
  ~FileTest() override { fs::remove_all(folder_); }

  size_t FileCount() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

template <typename Call>
std::string MessageOf(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(FileTest, PiecesAreWrittenInOrderAndReadBack) {
  const fs::path path = folder_ / "f";
  const std::string head = "head", body(300000, 'x');
  const std::span<const std::byte> pieces[] = {
      std::as_bytes(std::span(head)), {}, std::as_bytes(std::span(body))};
  WriteFileAtomically(path, pieces);
  EXPECT_EQ(ReadFile(path), head + body);
  const MappedFile mapped(path);
  ASSERT_EQ(mapped.bytes().size(), head.size() + body.size());
  EXPECT_EQ(mapped.bytes()[1], std::byte{'e'});
  EXPECT_EQ(FileCount(), 1u) << "a temporary file was left";
}

TEST_F(FileTest, ReplacesLongerContent) {
  const fs::path path = folder_ / "f";
  WriteFileAtomically(path, "a longer first content");
  WriteFileAtomically(path, "short");
  EXPECT_EQ(ReadFile(path), "short");
}

TEST_F(FileTest, EmptyFiles) {
  const fs::path path = folder_ / "empty";
  WriteFileAtomically(path, "");
  EXPECT_EQ(ReadFile(path), "");
  EXPECT_TRUE(MappedFile(path).bytes().empty());
}

TEST_F(FileTest, NoFileBesideItIsTakenForATemporaryOne) {
  const std::string own = ".tmp-" + std::to_string(getpid()) + "-0";
  for (const std::string& name : {std::string("f.tmp"), "f" + own}) {
    WriteFileAtomically(folder_ / name, "somebody's");
  }
  WriteFileAtomically(folder_ / "f", "new");
  EXPECT_EQ(ReadFile(folder_ / "f.tmp"), "somebody's");
  EXPECT_EQ(ReadFile(folder_ / ("f" + own)), "somebody's");
  EXPECT_EQ(FileCount(), 3u);
}

// Lets files grow up to so many bytes only.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit old_{};
};

TEST_F(FileTest, AWriteThatFailsHalfWayLeavesTheOldContent) {
  const fs::path path = folder_ / "f";
  WriteFileAtomically(path, "old");
  std::string message;
  {
    const FileSizeLimit limit(10000);
    message = MessageOf([&] { WriteFileAtomically(path, std::string(100000, 'n')); });
  }
  EXPECT_NE(message.find("too large"), std::string::npos) << message;
  EXPECT_EQ(ReadFile(path), "old");
  EXPECT_EQ(FileCount(), 1u) << "the temporary file was left";
}

TEST_F(FileTest, ALockIsHeldByOneAtATime) {
  {
    const FileLock lock(folder_ / "lock", "the folder");
    EXPECT_EQ(MessageOf([&] { FileLock(folder_ / "lock", "the folder"); }),
              "the folder is in use by another process");
  }
  EXPECT_EQ(MessageOf([&] { FileLock(folder_ / "lock", "the folder"); }), "no error");
}

// A device, or a link to a file, is written to, never replaced.
TEST_F(FileTest, DevicesAndLinksStayWhatTheyAre) {
  const fs::path null = folder_ / "null";
  fs::create_symlink("/dev/null", null);
  WriteFileAtomically(null, "gone");
  EXPECT_TRUE(fs::is_symlink(null));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  const fs::path link = folder_ / "link";
  WriteFileAtomically(folder_ / "target", "old");
  fs::create_symlink("target", link);
  WriteFileAtomically(link, "new");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(ReadFile(folder_ / "target"), "new");
}

TEST_F(FileTest, ErrorsNameThePath) {
  const fs::path missing = folder_ / "no" / "such";
  for (const std::string& message :
       {MessageOf([&] { ReadFile(missing); }), MessageOf([&] { MappedFile file(missing); }),
        MessageOf([&] { WriteFileAtomically(missing, "x"); }),
        MessageOf([&] { SyncFolder(missing); })}) {
    EXPECT_NE(message.find(missing.string()), std::string::npos) << message;
    EXPECT_NE(message.find("No such file"), std::string::npos) << message;
  }
  EXPECT_NE(MessageOf([&] { MappedFile file(folder_); }).find("not a regular file"),
            std::string::npos);
}

// What never ends, or does not begin until somebody writes.
TEST_F(FileTest, ReadsRegularFilesOnly) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const fs::path& path : {fs::path("/dev/zero"), pipe, fs::path(folder_)}) {
    for (const std::string& message :
         {MessageOf([&] { ReadFile(path); }), MessageOf([&] { MappedFile file(path); })}) {
      EXPECT_EQ(message, path.string() + " is not a regular file");
    }
  }
}

TEST_F(FileTest, ReadFileRefusesMoreThanAllowed) {
  const fs::path path = folder_ / "f";
  WriteFileAtomically(path, "12345");
  EXPECT_EQ(ReadFile(path, 5), "12345");
  EXPECT_NE(MessageOf([&] { ReadFile(path, 4); }).find("larger than 4 bytes"), std::string::npos);
}

TEST(Error, UsageErrorsAreErrorsOfTheirOwn) {
  EXPECT_THROW(FailUsage("{} is wrong", 3), UsageError);
  EXPECT_EQ(MessageOf([] { FailUsage("{} is wrong", 3); }), "3 is wrong");
  try {
    Fail("plain");
  } catch (const UsageError&) {
    ADD_FAILURE() << "a plain error must not mean exit status 2";
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace parax
