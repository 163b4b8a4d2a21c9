// Any bytes must give an image or a one-line reason: whole, in part, reduced, and transformed.

#include <cstdlib>
#include <vector>

#include "parax/data/transform.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace parax;
  static Decoder decoder(1 << 20);  // larger images only cost time
  static Image image;
  static Transform transform([] {
    TransformOptions options;
    options.image_size = 16;
    options.train = true;
    return options;
  }());
  static std::vector<float> out(static_cast<size_t>(transform.output_floats()));
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));

  const auto decode = [&](const DecodeHint& hint) {
    const std::string why = decoder.Decode(file, hint, image);
    if (why.find('\n') != std::string::npos) std::abort();
    if (!why.empty()) return false;
    // Touches every pixel, for the sanitizers.
    uint8_t sum = 0;
    for (int y = 0; y < image.height; ++y) {
      for (int x = 0; x < 3 * image.width; ++x) sum = static_cast<uint8_t>(sum + image.row(y)[x]);
    }
    [[maybe_unused]] static volatile uint8_t sink;
    sink = sum;
    return true;
  };
  const bool whole = decode({});
  RandomStream random(size, RandomUse::kTest);
  if (whole) {
    DecodeHint hint;
    hint.left = static_cast<int>(random.Below(image.full_width));
    hint.top = static_cast<int>(random.Below(image.full_height));
    hint.width = 1 + static_cast<int>(random.Below(image.full_width - hint.left));
    hint.height = 1 + static_cast<int>(random.Below(image.full_height - hint.top));
    hint.max_reduction = 1 << random.Below(4);
    if (!decode(hint)) std::abort();  // reads no more than the whole did
  }
  const bool transformed = transform.Run(file, random, decoder, out.data()).empty();
  if (whole && !transformed) std::abort();
  return 0;
}
