// Stands in for libFuzzer where the compiler has none: runs every file of the corpus folders, then
// deterministic mutations of them. Takes libFuzzer's flags -runs=N, -max_total_time=SECONDS,
// -seed=N. An input that crashes, or runs for over 30 seconds, is saved as crash-input.

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "parax/base/file.h"
#include "parax/base/philox.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// Sanitizers end the process without a signal.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

std::string current;

void SaveInput() {
  const int file = open("crash-input", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0 || write(file, current.data(), current.size()) < 0) return;
  constexpr std::string_view kSaid = "the input was saved as crash-input\n";
  if (write(2, kSaid.data(), kSaid.size()) < 0) return;
}

void OnSignal(int number) {
  SaveInput();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void Run(std::string input) {
  current = std::move(input);
  alarm(30);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current.data()), current.size());
}

std::string Mutate(const std::vector<std::string>& corpus, parax::RandomStream& random) {
  std::string text = corpus[random.Below(corpus.size())];
  for (uint64_t left = 1 + random.Below(6); left > 0; --left) {
    const size_t at = random.Below(text.size() + 1);
    const size_t length = std::min<size_t>(text.size() - at, 1 + random.Below(16));
    switch (random.Below(7)) {
      case 0:  // a bit
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ 1 << random.Below(8));
        break;
      case 1: {  // an interesting byte
        constexpr char kBytes[] = {'\x00', '\x01', '\x7f', '\x80', '\xff', '"', '{', '9'};
        if (at < text.size()) text[at] = kBytes[random.Below(sizeof(kBytes))];
        break;
      }
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      case 4:
        for (size_t i = 0; i < length; ++i) text[at + i] = static_cast<char>(random.Next());
        break;
      case 5:
        text.resize(at);
        break;
      case 6: {  // a piece of another file
        const std::string& other = corpus[random.Below(corpus.size())];
        text.replace(at, length, other.substr(random.Below(other.size() + 1), random.Below(64)));
        break;
      }
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t runs = UINT64_MAX, seed = 0, seconds = 0;
  std::vector<std::string> corpus;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto number = [&](std::string_view flag, uint64_t& value) {
      if (!word.starts_with(flag)) return false;
      const char* end = word.data() + word.size();
      return std::from_chars(word.data() + flag.size(), end, value).ptr == end;
    };
    if (number("-runs=", runs) || number("-seed=", seed) || number("-max_total_time=", seconds)) {
      continue;
    }
    if (std::filesystem::is_directory(word)) {
      std::vector<std::filesystem::path> paths;
      for (const auto& entry : std::filesystem::directory_iterator(word)) paths.push_back(entry);
      std::sort(paths.begin(), paths.end());
      for (const auto& path : paths) corpus.push_back(parax::ReadFile(path));
    } else if (std::filesystem::exists(word)) {
      corpus.push_back(parax::ReadFile(word));
    } else {
      fmt::print(stderr, "'{}' is neither a file, a folder nor a known flag\n", word);
      return 2;
    }
  }
  if (corpus.empty()) {
    fmt::print(stderr, "no corpus: name a folder or file\n");
    return 2;
  }
  if (runs == UINT64_MAX && seconds == 0) runs = 0;  // only replay
  for (int number : {SIGSEGV, SIGABRT, SIGALRM, SIGFPE, SIGBUS}) std::signal(number, OnSignal);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(SaveInput);

  const auto start = std::chrono::steady_clock::now();
  for (const std::string& file : corpus) Run(file);
  uint64_t done = 0;
  for (; done < runs; ++done) {
    if (seconds > 0 && std::chrono::steady_clock::now() - start > std::chrono::seconds(seconds)) {
      break;
    }
    parax::RandomStream random(seed, parax::RandomUse::kTest, done);
    Run(Mutate(corpus, random));
  }
  fmt::print("{} files and {} mutations, no crash\n", corpus.size(), done);
  return 0;
}
