#pragma once

#include <filesystem>
#include <string>
#include <vector>

// The repository's own text files, for tests of the repository itself.
namespace parax::repo {

struct SourceFile {
  std::string path;  // from the repository's root, with '/'
  std::string text;

  std::string extension() const { return std::filesystem::path(path).extension().string(); }
};

std::filesystem::path Root();

// Every text file of the repository, sorted by path: without build trees, dependencies, run
// folders and the image set.
const std::vector<SourceFile>& Files();

std::vector<std::string> Lines(const std::string& text);

}  // namespace parax::repo
