// Every `parax ...` command that the documentation shows is one that the program understands: it is
// given to the program with --parse-only, which checks flags, names and values and does nothing.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <regex>

#include "tests/repo/tree.h"

namespace parax::repo {
namespace {

// The commands in ```sh blocks that start with `parax`, lines ending in \ joined, comments and
// pipes cut off.
std::vector<std::string> Commands(const std::string& markdown) {
  static const std::regex command(
      "^(?:\\$ )?(?:.*\\| *)?(?:build/release/bin/)?parax ((?:[^#|>]|<)*)");
  std::vector<std::string> commands;
  bool in_shell = false;
  std::string joined;
  for (const std::string& line : Lines(markdown)) {
    if (line.starts_with("```")) {
      in_shell = line == "```sh";
      continue;
    }
    if (!in_shell) continue;
    joined += line;
    if (joined.ends_with('\\')) {
      joined.pop_back();
      continue;
    }
    std::smatch match;
    if (std::regex_search(joined, match, command)) commands.push_back(match[1]);
    joined.clear();
  }
  return commands;
}

TEST(Commands, AreFound) {
  EXPECT_EQ(
      Commands("parax no\n```sh\nparax train --data d \\\n  --lr 1  # why\nls\n```\nparax no\n"),
      (std::vector<std::string>{"train --data d   --lr 1  "}));
  EXPECT_EQ(Commands("```sh\nls *.jpg | parax predict --model r -\n```\n"),
            (std::vector<std::string>{"predict --model r -"}));
}

#ifdef PARAX_BINARY

struct Result {
  int status;
  std::string output;
};

Result RunParax(const std::string& arguments) {
  const std::string line = "cd '" PARAX_SOURCE_DIR "' && '" PARAX_BINARY "' " + arguments +
                           " --parse-only </dev/null 2>&1";
  Result result{-1, ""};
  FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> buffer;
  while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) {
    result.output.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

TEST(Commands, InTheDocumentationParse) {
  int commands = 0;
  for (const SourceFile& file : Files()) {
    if (file.extension() != ".md") continue;
    for (const std::string& command : Commands(file.text)) {
      ++commands;
      // A run folder's own file is not there: any other one shows as well that the flag is right.
      static const std::regex own_config("--config runs/\\S+");
      const Result result = RunParax(
          std::regex_replace(command, own_config, "--config recipes/cifar10-resnet20.toml"));
      EXPECT_EQ(result.status, 0) << file.path << ": parax " << command << "\n" << result.output;
    }
  }
  EXPECT_GT(commands, 10);
}

TEST(Commands, RecipesParse) {
  int recipes = 0;
  for (const SourceFile& file : Files()) {
    if (file.extension() != ".toml" || !file.path.starts_with("recipes/")) continue;
    ++recipes;
    const Result result = RunParax("train --data synthetic --config " + file.path);
    EXPECT_EQ(result.status, 0) << file.path << "\n" << result.output;
  }
  EXPECT_GE(recipes, 3);
}

TEST(Commands, WrongOnesDoNotParse) {
  EXPECT_EQ(RunParax("train --data synthetic --model resnet18 --epoch 3").status, 2);
  EXPECT_EQ(RunParax("train --data synthetic --model resnet19").status, 2);
}

#endif

}  // namespace
}  // namespace parax::repo
