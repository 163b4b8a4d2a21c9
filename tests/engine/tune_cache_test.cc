#include "parax/engine/tune_cache.h"

#include <gtest/gtest.h>

#include <fstream>

#include "parax/base/file.h"
#include "tests/engine/test_files.h"

namespace parax {
namespace {

using testing::TemporaryFolder;

TunedPlan SomePlan() {
  return {true, {{"conv1", false}}, {{"conv1", {"a:b", "c"}}, {"relu#2", {"d"}}}, "tuned"};
}

std::filesystem::path WriteSome(const std::filesystem::path& folder) {
  TuneCache cache(folder / "new" / "tuning.json");
  cache.SetTimes("op", {0.25, 0.125});
  cache.SetPlan("network", SomePlan());
  cache.Save();
  return folder / "new" / "tuning.json";
}

TEST(TuneCache, GivesBackWhatWasSaved) {
  const TemporaryFolder folder;
  const TuneCache cache(WriteSome(folder.path()));
  ASSERT_TRUE(cache.Times("op"));
  EXPECT_EQ(cache.Times("op")->cold, 0.25);
  EXPECT_EQ(cache.Times("op")->warm, 0.125);
  EXPECT_FALSE(cache.Times("other"));
  ASSERT_TRUE(cache.Plan("network"));
  EXPECT_TRUE(cache.Plan("network")->blocked);
  EXPECT_EQ(cache.Plan("network")->layouts, SomePlan().layouts);
  EXPECT_EQ(cache.Plan("network")->implementations, SomePlan().implementations);
  EXPECT_EQ(cache.Plan("network")->kind, "tuned");
}

TEST(TuneCache, KeepsWhatOthersWroteSince) {
  const TemporaryFolder folder;
  const auto file = WriteSome(folder.path());
  TuneCache one(file), other(file);
  one.SetTimes("one", {1, 1});
  other.SetTimes("other", {2, 2});
  other.SetTimes("op", {3, 3});
  one.Save();
  other.Save();
  const TuneCache all(file);
  EXPECT_EQ(all.Times("one")->cold, 1);
  EXPECT_EQ(all.Times("other")->cold, 2);
  EXPECT_EQ(all.Times("op")->cold, 3) << "what is newer wins";
}

TEST(TuneCache, IgnoresWhatWasCutOrChanged) {
  const TemporaryFolder folder;
  const auto file = WriteSome(folder.path());
  const std::string whole = ReadFile(file);
  const size_t end = whole.find_last_of('}');
  for (size_t bytes = 0; bytes <= end; ++bytes) {
    std::ofstream(file, std::ios::binary) << whole.substr(0, bytes);
    const TuneCache cache(file);
    ASSERT_FALSE(cache.Times("op") || cache.Plan("network")) << bytes << " bytes";
  }
  for (const auto& [from, to] :
       {std::pair{"0.25", "0.75"}, {"\"format\": 1", "\"format\": 2"}, {"conv1", "conv2"}}) {
    std::string changed = whole;
    ASSERT_NE(changed.find(from), std::string::npos) << from;
    changed.replace(changed.find(from), std::string(from).size(), to);
    std::ofstream(file, std::ios::binary) << changed;
    EXPECT_FALSE(TuneCache(file).Times("op")) << from;
  }
  TuneCache cache(file);  // and is written anew
  cache.SetTimes("op", {1, 1});
  cache.Save();
  EXPECT_TRUE(TuneCache(file).Times("op"));
}

TEST(TuneCache, DoesWithoutAFile) {
  const TemporaryFolder folder;
  TuneCache none("");
  none.SetTimes("op", {1, 1});
  none.Save();
  std::ofstream(folder.path() / "file") << "x";
  TuneCache impossible(folder.path() / "file" / "tuning.json");  // no folder can be made there
  impossible.SetTimes("op", {1, 1});
  impossible.Save();
  EXPECT_EQ(impossible.Times("op")->cold, 1);
  EXPECT_EQ(ReadFile(folder.path() / "file"), "x");
}

}  // namespace
}  // namespace parax
