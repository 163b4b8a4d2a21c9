// Links in the documentation lead somewhere.
#include <gtest/gtest.h>

#include <regex>

#include "tests/repo/tree.h"

namespace parax::repo {
namespace {

// Targets of [text](target) and src="target" that are files of ours, without #fragment.
std::vector<std::string> LocalLinks(const std::string& markdown) {
  static const std::regex link("(?:\\]\\(|src=\")([^)\"\\s#]+)");
  std::vector<std::string> targets;
  for (std::sregex_iterator it(markdown.begin(), markdown.end(), link), end; it != end; ++it) {
    const std::string target = (*it)[1];
    if (target.find("://") == std::string::npos) targets.push_back(target);
  }
  return targets;
}

TEST(Docs, LinksAreFound) {
  EXPECT_EQ(LocalLinks("[a](docs/a.md#b) [c](https://x.y/z) <img src=\"p.svg\">"),
            (std::vector<std::string>{"docs/a.md", "p.svg"}));
}

TEST(Docs, LinkedFilesExist) {
  int links = 0;
  for (const SourceFile& file : Files()) {
    if (file.extension() != ".md") continue;
    const auto folder = (Root() / file.path).parent_path();
    for (const std::string& target : LocalLinks(file.text)) {
      ++links;
      EXPECT_TRUE(std::filesystem::exists(folder / target)) << file.path << " links to " << target;
    }
  }
  EXPECT_GT(links, 5);
}

}  // namespace
}  // namespace parax::repo
