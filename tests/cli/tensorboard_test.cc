#include "parax/cli/tensorboard.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "parax/base/file.h"
#include "tests/engine/test_files.h"

namespace parax {
namespace {

using testing::ErrorOf;
using testing::TemporaryFolder;

template <typename T>
T Take(std::string_view& bytes) {
  T value{};
  EXPECT_GE(bytes.size(), sizeof value);
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  bytes.remove_prefix(std::min(bytes.size(), sizeof value));
  return value;
}

// A protobuf message's fields: numbers as their 64 bits, the rest as bytes. Each field once.
struct Message {
  std::map<uint64_t, uint64_t> numbers;
  std::map<uint64_t, std::string_view> bytes;

  explicit Message(std::string_view in) {
    const auto varint = [&] {
      uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = Take<uint8_t>(in);
        value |= uint64_t{byte & 0x7fu} << shift;
        if (byte < 0x80 || in.empty()) return value;
      }
    };
    while (!in.empty()) {
      const uint64_t key = varint();
      bool fresh = true;
      if ((key & 7) == 0) {
        fresh = numbers.emplace(key >> 3, varint()).second;
      } else if ((key & 7) == 1) {
        fresh = numbers.emplace(key >> 3, Take<uint64_t>(in)).second;
      } else if ((key & 7) == 5) {
        fresh = numbers.emplace(key >> 3, Take<uint32_t>(in)).second;
      } else {
        EXPECT_EQ(key & 7, 2u);
        const uint64_t size = std::min<uint64_t>(varint(), in.size());
        fresh = bytes.emplace(key >> 3, in.substr(0, size)).second;
        in.remove_prefix(size);
      }
      EXPECT_TRUE(fresh) << "field " << (key >> 3) << " twice";
    }
  }
};

struct ReadEvent {
  double time = 0;
  uint64_t step = 0;
  std::string version, tag;
  std::optional<float> value;
  uint64_t session = 0;
};

uint32_t Masked(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

std::vector<ReadEvent> ReadEvents(const std::filesystem::path& path) {
  const std::string file = ReadFile(path);
  std::string_view in = file;
  std::vector<ReadEvent> events;
  while (!in.empty()) {
    const std::string_view head = in.substr(0, 8);
    const auto size = Take<uint64_t>(in);
    EXPECT_EQ(Take<uint32_t>(in), Masked(head));
    EXPECT_LE(size + 4, in.size());
    if (size + 4 > in.size()) return events;
    const std::string_view body = in.substr(0, size);
    in.remove_prefix(size);
    EXPECT_EQ(Take<uint32_t>(in), Masked(body));
    Message m(body);
    ReadEvent event;
    event.time = std::bit_cast<double>(m.numbers[1]);
    event.step = m.numbers[2];
    event.version = m.bytes[3];
    if (m.bytes.contains(5)) {
      const Message summary(m.bytes[5]);
      Message entry(summary.bytes.at(1));
      event.tag = entry.bytes[1];
      event.value = std::bit_cast<float>(static_cast<uint32_t>(entry.numbers.at(2)));
    }
    if (m.bytes.contains(7)) event.session = Message(m.bytes[7]).numbers.at(1);
    events.push_back(event);
  }
  return events;
}

std::set<std::filesystem::path> Files(const std::filesystem::path& folder) {
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.insert(entry.path());
  return files;
}

TEST(TensorBoardTest, Crc32cOfKnownInputs) {
  std::string up, down;
  for (int i = 0; i < 32; ++i) up += static_cast<char>(i);
  for (int i = 31; i >= 0; --i) down += static_cast<char>(i);
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  // RFC 3720, appendix B.4.
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(up), 0x46dd794eu);
  EXPECT_EQ(Crc32c(down), 0x113fdb5cu);
}

TEST(TensorBoardTest, WritesScalars) {
  const TemporaryFolder folder;
  const std::string long_tag(300, 't');  // its length takes two bytes, as do the lengths around it
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  const double before = now();
  {
    EventWriter writer(folder.path(), 0);
    writer.Scalar("train/loss", 0, 2.5);
    writer.Scalar("train/loss", 300, -0.125);
    writer.Scalar(long_tag, uint64_t{1} << 40, 1.0 / 3);
  }
  const auto files = Files(folder.path());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_NE(files.begin()->filename().string().find("tfevents"), std::string::npos);
  const auto events = ReadEvents(*files.begin());
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[1].tag, "train/loss");
  EXPECT_EQ(events[1].step, 0u);
  EXPECT_EQ(events[1].value, 2.5f);
  EXPECT_EQ(events[2].step, 300u);
  EXPECT_EQ(events[2].value, -0.125f);
  EXPECT_EQ(events[3].tag, long_tag);
  EXPECT_EQ(events[3].step, uint64_t{1} << 40);
  EXPECT_EQ(events[3].value, static_cast<float>(1.0 / 3));
  for (const ReadEvent& event : events) {
    EXPECT_EQ(event.session, 0u);
    EXPECT_GE(event.time, before);
    EXPECT_LE(event.time, now());
  }
}

TEST(TensorBoardTest, ResumeAddsAFileThatPurgesLaterSteps) {
  const TemporaryFolder folder;
  { EventWriter writer(folder.path(), 0); }
  const auto first = Files(folder.path());
  {
    EventWriter writer(folder.path(), 7);
    writer.Scalar("loss", 8, 1);
  }
  const auto both = Files(folder.path());
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(*both.begin(), *first.begin()) << "TensorBoard reads in the order of names";
  const auto events = ReadEvents(*both.rbegin());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].session, 1u);  // START
  EXPECT_EQ(events[1].step, 8u);     // the first that the new session writes
  EXPECT_EQ(events[2].value, 1.0f);
}

TEST(TensorBoardTest, WritersOfOneMomentGetFilesOfTheirOwn) {
  const TemporaryFolder folder;
  for (int i = 0; i < 20; ++i) EventWriter(folder.path(), 0).Scalar("loss", 1, i);
  const auto files = Files(folder.path());
  ASSERT_EQ(files.size(), 20u);
  float next = 0;
  for (const auto& file : files) EXPECT_EQ(ReadEvents(file).at(1).value, next++);
}

TEST(TensorBoardTest, FlushedEventsAreInTheFile) {
  const TemporaryFolder folder;
  EventWriter writer(folder.path(), 0);
  writer.Scalar("loss", 1, 1);
  writer.Flush();
  EXPECT_EQ(ReadEvents(*Files(folder.path()).begin()).size(), 2u);
}

TEST(TensorBoardTest, NamesAFolderThatIsNotThere) {
  EXPECT_NE(ErrorOf([] { EventWriter writer("/nonexistent", 0); }).find("/nonexistent"),
            std::string::npos);
}

TEST(TensorBoardTest, AFullDiskCostsOneWarning) {
  const TemporaryFolder folder;
  EventWriter writer(folder.path(), 0);
  const auto file = *Files(folder.path()).begin();
  // Enough that the warnings' own file stays below the limit.
  for (uint64_t step = 1; step <= 50; ++step) writer.Scalar("loss", step, 1);
  writer.Flush();
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit full{std::filesystem::file_size(file), before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  ::testing::internal::CaptureStderr();
  for (uint64_t step = 1; step <= 3; ++step) {
    writer.Scalar("loss", step, 1);
    writer.Flush();
  }
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, old_handler);
  EXPECT_EQ(std::count(warnings.begin(), warnings.end(), '\n'), 1) << warnings;
  EXPECT_NE(warnings.find(file.string()), std::string::npos) << warnings;
}

}  // namespace
}  // namespace parax
