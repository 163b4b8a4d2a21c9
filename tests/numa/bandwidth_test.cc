#include "parax/numa/bandwidth.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "parax/base/file.h"

namespace parax {
namespace {

std::vector<Seat> TwoSeats() {
  return {{.index = 0, .pus = {0}, .bind = false}, {.index = 1, .pus = {1}, .bind = false}};
}

constexpr double kAlways = 1;  // kept, whatever runs beside the test

class TemporaryFile {
 public:
  TemporaryFile()
      : path(std::filesystem::temp_directory_path() /
             ("bandwidth_test_" + std::to_string(getpid()) + ".json")) {}
  ~TemporaryFile() { std::filesystem::remove(path); }
  const std::filesystem::path path;
};

TEST(Bandwidth, IsThatOfMemory) {
  const std::vector<double> found = MeasureCopyBandwidth(TwoSeats());
  ASSERT_EQ(found.size(), 2u);
  for (const double value : found) {
    EXPECT_GT(value, 1e8);
    EXPECT_LT(value, 1e12);
  }
}

TEST(Bandwidth, IsMeasuredOnce) {
  const TemporaryFile file;
  const std::vector<double> measured = CopyBandwidth(TwoSeats(), -1, "a CPU", file.path, kAlways);
  EXPECT_EQ(CopyBandwidth(TwoSeats(), -1, "a CPU", file.path, kAlways), measured);
  EXPECT_NE(CopyBandwidth(TwoSeats(), -1, "another CPU", file.path, kAlways), measured);
  EXPECT_EQ(CopyBandwidth(TwoSeats(), -1, "a CPU", file.path, kAlways), measured)
      << "lost to the other";
}

TEST(Bandwidth, IsNotKeptWhenOthersRanMeanwhile) {
  const TemporaryFile file;
  EXPECT_EQ(CopyBandwidth(TwoSeats(), -1, "a CPU", file.path, -1).size(), 2u);
  EXPECT_FALSE(std::filesystem::exists(file.path));
}

TEST(Bandwidth, MeasuresAnewWhatTheFileHoldsWrongly) {
  const TemporaryFile file;
  for (const char* text :
       {"{", "{\"format\": 1, \"bytes_per_s\": 3}", "{\"format\": 9, \"bytes_per_s\": {}}",
        "{\"format\": 1, \"bytes_per_s\": {\"a CPU; node -1; seats 0 1\": [0.5, \"x\"]}}",
        "{\"format\": 1, \"bytes_per_s\": {\"a CPU; node -1; seats 0 1\": [1, 0]}}"}) {
    WriteFileAtomically(file.path, text);
    const std::vector<double> found = CopyBandwidth(TwoSeats(), -1, "a CPU", file.path, kAlways);
    ASSERT_EQ(found.size(), 2u) << text;
    EXPECT_GT(found[1], 1e8) << text;
    EXPECT_EQ(CopyBandwidth(TwoSeats(), -1, "a CPU", file.path, kAlways), found) << text;
  }
}

}  // namespace
}  // namespace parax
