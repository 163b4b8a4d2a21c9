// The repository's rules, over all of its files.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/repo/rules.h"

namespace parax::repo {
namespace {

void ExpectNone(Findings (*rule)(const SourceFile&)) {
  ASSERT_GT(Files().size(), 50u) << "the repository's files were not found at " << Root();
  for (const SourceFile& file : Files()) {
    for (const std::string& finding : rule(file)) ADD_FAILURE() << finding;
  }
}

TEST(Source, FoldersIncludeOnlyWhatStandsLeftOfThem) { ExpectNone(IncludeOrder); }
TEST(Source, HeavyHeadersStayOutOfPublicHeaders) { ExpectNone(PublicHeadersAreLight); }
TEST(Source, FilesAreShort) { ExpectNone(Length); }
TEST(Source, NoMachinesPathsOrHosts) { ExpectNone(NoPlaces); }
TEST(Source, NothingUnfinished) { ExpectNone(Finished); }
TEST(Source, FlagsArePortable) { ExpectNone(PortableFlags); }

}  // namespace
}  // namespace parax::repo
