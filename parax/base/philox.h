#pragma once

#include <array>
#include <cstdint>

namespace parax {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011):
// a counter-based generator, so a draw depends on its coordinates and never on threads or order.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// What a stream of random numbers is for; part of its coordinates, so uses never share numbers.
enum class RandomUse : uint32_t {
  kInit = 1,     // a = parameter index
  kShuffle = 2,  // a = epoch
  kAugment = 3,  // a = epoch, b = sample
  kMix = 4,      // a = iteration (mixup, cutmix)
  kDropout = 5,  // a = iteration, b = sample
  kSplit = 6,    // train/validation split
  kTest = 7,
  kSynthetic = 8,
  kSimulation = 9,  // a = work of a leaf, b = leaf
};

// The numbers at coordinates (seed, use, a, b), in order. Cheap to create; not shared by threads.
class RandomStream {
 public:
  RandomStream(uint64_t seed, RandomUse use, uint64_t a = 0, uint64_t b = 0);

  uint32_t Next();
  uint64_t Next64() {
    const uint64_t high = Next();
    return high << 32 | Next();
  }
  double Uniform() { return static_cast<double>(Next64() >> 11) * 0x1.0p-53; }  // [0, 1)
  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }
  uint64_t Below(uint64_t n);  // uniform over 0 .. n-1; n > 0
  double Normal();             // mean 0, variance 1 (Box-Muller)

 private:
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> block_{};
  int left_ = 0;
};

}  // namespace parax
