// Images a second of decoding and augmenting on one core, on a folder of photographs held in
// memory. input_pipeline.py runs it in alternation with torchvision.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "parax/base/file.h"
#include "parax/data/transform.h"

int main(int argc, char** argv) {
  std::string folder;
  double seconds = 3;
  int limit = 1000;
  parax::TransformOptions options;
  options.train = true;
  bool no_scaling = false;
  CLI::App app("Images a second of decode + random resized crop + flip + normalise on one core");
  app.add_option("folder", folder, "searched recursively for .jpg and .png")->required();
  app.add_option("--seconds", seconds, "to measure");
  app.add_option("--limit", limit, "most images");
  app.add_option("--image-size", options.image_size, "output height and width");
  app.add_flag("--no-scaled-decoding", no_scaling, "decode JPEGs at full size");
  CLI11_PARSE(app, argc, argv);
  options.scaled_decoding = !no_scaling;

  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const auto extension = entry.path().extension();
    if (extension == ".jpg" || extension == ".png") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> files;
  const size_t step = std::max<size_t>(1, paths.size() / static_cast<size_t>(limit));
  for (size_t i = 0; i < paths.size(); i += step) files.push_back(parax::ReadFile(paths[i]));
  if (files.empty()) {
    std::fprintf(stderr, "%s holds no .jpg or .png\n", folder.c_str());
    return 1;
  }

  parax::Decoder decoder;
  parax::Transform transform(options);
  std::vector<float> out(static_cast<size_t>(transform.output_floats()));
  const auto start = std::chrono::steady_clock::now();
  double elapsed = 0;
  uint64_t done = 0;
  while (elapsed < seconds) {
    parax::RandomStream random(0, parax::RandomUse::kAugment, done / files.size(),
                               done % files.size());
    const std::string& file = files[done % files.size()];
    const std::string error =
        transform.Run(std::as_bytes(std::span(file)), random, decoder, out.data());
    if (!error.empty()) {
      std::fprintf(stderr, "%s: %s\n", paths[done % files.size() * step].c_str(), error.c_str());
      return 1;
    }
    ++done;
    elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  std::printf("%.1f\n", static_cast<double>(done) / elapsed);
  return 0;
}
