#include "tests/repo/tree.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

namespace parax::repo {
namespace {

std::vector<SourceFile> ReadTree() {
  const std::set<std::string> skipped = {".git", ".deps", "build", "runs", "data", "__pycache__"};
  const std::set<std::string> binary = {".png", ".jpg", ".safetensors", ".npy"};
  std::vector<SourceFile> files;
  namespace fs = std::filesystem;
  for (fs::recursive_directory_iterator it(Root()), end; it != end; ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory()) {
      // Only at the top: parax/data and tests/data are code.
      if (it.depth() == 0 && skipped.count(name) != 0) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file() || binary.count(it->path().extension().string()) != 0) continue;
    std::ifstream in(it->path(), std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    files.push_back({it->path().lexically_relative(Root()).generic_string(), text.str()});
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

}  // namespace

std::filesystem::path Root() { return PARAX_SOURCE_DIR; }

const std::vector<SourceFile>& Files() {
  static const std::vector<SourceFile> files = ReadTree();
  return files;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace parax::repo
