#include "tests/repo/rules.h"

#include <fmt/core.h>

#include <map>
#include <regex>

namespace parax::repo {
namespace {

bool IsCpp(const SourceFile& file) { return file.extension() == ".h" || file.extension() == ".cc"; }

bool IsCode(const SourceFile& file) {
  const std::string extension = file.extension();
  return IsCpp(file) || extension == ".py" || extension == ".sh" || extension == ".cmake" ||
         file.path.ends_with("CMakeLists.txt") || file.path == ".ci/run";
}

// A finding for every line that the pattern matches.
Findings Matches(const SourceFile& file, const std::regex& pattern, std::string_view what) {
  Findings findings;
  int number = 0;
  for (const std::string& line : Lines(file.text)) {
    ++number;
    std::smatch match;
    if (std::regex_search(line, match, pattern)) {
      findings.push_back(fmt::format("{}:{}: {}: {}", file.path, number, what, match.str()));
    }
  }
  return findings;
}

bool IsInternal(const std::string& path) { return path.find("_internal.h") != std::string::npos; }

}  // namespace

Findings IncludeOrder(const SourceFile& file) {
  static const std::map<std::string, int> ranks = {
      {"base", 0}, {"numa", 1},   {"layers", 2}, {"sched", 2},  {"gradserver", 2},
      {"data", 3}, {"engine", 4}, {"models", 5}, {"hybrid", 5}, {"cli", 6}};
  static const std::regex place("^parax/([^/]+)/");
  static const std::regex include(
      "^\\s*#\\s*include\\s*[\"<]((?:parax|tests|bench)/([^/]+)/[^\">]*)");
  std::smatch match;
  if (!IsCpp(file) || !std::regex_search(file.path, match, place)) return {};
  const std::string folder = match[1];
  if (ranks.count(folder) == 0) {
    return {fmt::format("{}: the folder '{}' has no place in the order", file.path, folder)};
  }
  Findings findings;
  int number = 0;
  for (const std::string& line : Lines(file.text)) {
    ++number;
    if (!std::regex_search(line, match, include)) continue;
    const std::string target = match[1], other = match[2];
    const bool ours = target.starts_with("parax/") && ranks.count(other) != 0;
    if (ours && (other == folder || ranks.at(other) < ranks.at(folder))) continue;
    findings.push_back(
        fmt::format("{}:{}: '{}' may not include {}", file.path, number, folder, target));
  }
  return findings;
}

Findings PublicHeadersAreLight(const SourceFile& file) {
  if (file.extension() != ".h" || !file.path.starts_with("parax/") || IsInternal(file.path)) {
    return {};
  }
  static const std::regex heavy(
      "#\\s*include\\s*[\"<](oneapi/|dnnl|nlohmann|CLI/|jpeglib|png\\.h|hwloc|numa|tbb/"
      "|oneapi|Eigen|"
      "spdlog|omp\\.h|[^\">]*_internal\\.h)[^\">]*");
  return Matches(file, heavy, "belongs in a .cc or *_internal.h file");
}

Findings Length(const SourceFile& file) {
  if (!IsCode(file)) return {};
  Findings findings;
  const std::vector<std::string> lines = Lines(file.text);
  if (lines.size() > 350) {
    findings.push_back(fmt::format("{}: {} lines (at most 350)", file.path, lines.size()));
  }
  return findings;
}

Findings NoPlaces(const SourceFile& file) {
  // Put together from parts, so that this file does not find itself.
  static const std::regex places(std::string("(^|[^a-zA-Z0-9_.)}~-])/(wor") + "k|far" + "m|roo" +
                                 "t|hom" + "e)/|pypi\\.or" + "g|pythonhoste" + "d|deb\\.debia" +
                                 "n");
  return Matches(file, places, "a place of one machine or network");
}

Findings Finished(const SourceFile& file) {
  if (!IsCode(file)) return {};
  static const std::regex unfinished(std::string("\\b(TOD") + "O|FIXM" + "E|XX" + "X|HAC" +
                                     "K)\\b|not implemente" + "d|place" + "holder");
  Findings findings = Matches(file, unfinished, "unfinished");
  if (file.path.starts_with("tests/")) {
    static const std::regex weak(std::string("EXPECT_TRUE\\(tru") + "e\\)|ASSERT_TRUE\\(tru" +
                                 "e\\)|DISABLE" + "D_|SUCCEE" + "D\\(\\)");
    for (std::string& finding : Matches(file, weak, "a test that cannot fail")) {
      findings.push_back(std::move(finding));
    }
  }
  return findings;
}

Findings PortableFlags(const SourceFile& file) {
  if (!file.path.ends_with("CMakeLists.txt") && file.extension() != ".cmake" &&
      file.path != "CMakePresets.json") {
    return {};
  }
  static const std::regex flags("^[^#]*(-march=native|-mtune=native|-ffast-math|-Ofast)");
  return Matches(file, flags, "ties the binary to one machine or changes arithmetic");
}

}  // namespace parax::repo
