#include "parax/data/sample_decoder.h"

#include <algorithm>

#include "parax/base/error.h"
#include "parax/base/log.h"
#include "parax/base/philox.h"

namespace parax {
namespace {

constexpr int64_t kNamed = 5;         // broken files named in a warning; the others are counted
constexpr int64_t kAlwaysPassed = 3;  // so many broken files never end a run
constexpr int64_t kMostOf = 100;      // nor does one in so many

}  // namespace

SampleDecoder::SampleDecoder(const Split& split, const PipelineOptions& options)
    : split_(split),
      files_(split, options.keep_encoded_bytes),
      seed_(options.seed),
      mark_broken_(options.mark_broken),
      strict_(options.strict),
      image_floats_(Transform(options.transform).output_floats()),
      reported_(std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(split.size()))) {}

SampleDecoder::~SampleDecoder() {
  if (broken_count_ > kNamed && HasLabels())
    Warn("{} images in all could not be decoded", broken_count_.load());
}

int64_t SampleDecoder::Decode(int64_t sample, uint64_t epoch, Worker& worker, float* out) {
  int64_t tried = sample;
  do {
    if (TryDecode(tried, epoch, worker, out)) return tried;
    if (mark_broken_) {
      std::fill_n(out, image_floats_, 0.0f);
      return -1 - sample;
    }
    tried = NextOfClass(tried);
  } while (tried != sample);
  Fail("no image of the class of {} can be decoded", split_.Path(sample));
}

// What a crop needs of a file damaged in its middle differs from epoch to epoch: so every one tries
// again, lest an image depend on what was tried before it.
bool SampleDecoder::TryDecode(int64_t sample, uint64_t epoch, Worker& worker, float* out) {
  std::string why;
  const std::span<const std::byte> file = files_.Read(sample, worker.buffer, why);
  if (why.empty()) {
    RandomStream random(seed_, RandomUse::kAugment, epoch, static_cast<uint64_t>(sample));
    why = worker.transform.Run(file, random, worker.decoder, out);
  }
  if (why.empty()) return true;
  if (!reported_[static_cast<size_t>(sample)].exchange(true)) Report(sample, why);
  return false;
}

void SampleDecoder::Report(int64_t sample, const std::string& why) {
  const int64_t count = ++broken_count_;
  if (strict_) Fail("{} cannot be decoded: {}", split_.Path(sample), why);
  if (count <= kNamed || !HasLabels()) {
    Warn("{} cannot be decoded: {}{}", split_.Path(sample), why,
         mark_broken_ ? "; it is left out" : "; the next image of its class takes its place");
  }
  if (HasLabels() && count > std::max(kAlwaysPassed, split_.size() / kMostOf)) {
    Fail("{} of {} images cannot be decoded, the last one {}: {}", count, split_.size(),
         split_.Path(sample), why);
  }
}

int64_t SampleDecoder::NextOfClass(int64_t sample) const {
  const int32_t label = split_.label(sample);
  if (sample + 1 < split_.size() && split_.label(sample + 1) == label) return sample + 1;
  while (sample > 0 && split_.label(sample - 1) == label) --sample;  // around to the first one
  return sample;
}

}  // namespace parax
