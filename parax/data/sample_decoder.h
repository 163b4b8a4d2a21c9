#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parax/data/dataset.h"
#include "parax/data/encoded_files.h"
#include "parax/data/pipeline.h"
#include "parax/data/transform.h"

namespace parax {

// Turns sample numbers into images, and decides what becomes of files that cannot be decoded (see
// PipelineOptions::mark_broken). Used by many threads at once.
class SampleDecoder {
 public:
  struct Worker {  // one a thread
    explicit Worker(const TransformOptions& options) : transform(options) {}
    Transform transform;
    Decoder decoder;
    EncodedFiles::Buffer buffer;
  };

  SampleDecoder(const Split& split, const PipelineOptions& options);
  ~SampleDecoder();  // warns of broken files that were not named

  // Writes the image and returns the number of the sample it is of: another one, or a negative
  // number, when what the crop needs of the file is broken. The image depends on seed, epoch and
  // sample only. Throws Error when too many files are broken.
  int64_t Decode(int64_t sample, uint64_t epoch, Worker& worker, float* out);

  int32_t label(int64_t sample) const { return split_.label(sample); }
  int64_t image_floats() const { return image_floats_; }

 private:
  bool HasLabels() const { return !split_.empty() && split_.label(0) >= 0; }
  bool TryDecode(int64_t sample, uint64_t epoch, Worker& worker, float* out);
  void Report(int64_t sample, const std::string& why);
  int64_t NextOfClass(int64_t sample) const;

  const Split& split_;
  EncodedFiles files_;
  const uint64_t seed_;
  const bool mark_broken_, strict_;
  const int64_t image_floats_;
  std::unique_ptr<std::atomic<bool>[]> reported_;  // a sample each: counted as broken
  std::atomic<int64_t> broken_count_{0};
};

}  // namespace parax
