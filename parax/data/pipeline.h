#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "parax/base/stop.h"
#include "parax/data/dataset.h"
#include "parax/data/input.h"
#include "parax/data/transform.h"
#include "parax/sched/trace.h"

namespace parax {

struct PipelineOptions {
  BatchPlan plan;  // plan.samples is the split's size
  uint64_t seed = 0;
  int64_t first_iteration = 0;  // counted over all epochs: where a resumed run goes on
  int64_t epochs = 1;           // the input ends after so many, counted from the run's beginning
  bool shuffle = true;          // evaluation: false, so that samples come in the split's order
  int workers = 1;              // threads that decode
  std::vector<int> worker_pus = {};     // they may run on these only; empty: anywhere
  std::vector<int> leaf_os_nodes = {};  // NUMA node of each leaf's memory; empty: anywhere
  int prefetch = 3;                     // micro-batches a leaf that may be decoded ahead
  TransformOptions transform = {};
  MixOptions mix = {};
  int64_t classes = 0;            // needed for mixing only
  size_t keep_encoded_bytes = 0;  // keep the files in memory when all of them fit into so much
  // What becomes of a file that cannot be decoded. false (training): the next image of its class
  // takes its place. true (evaluation, prediction): a black image without a label, whose sample id
  // is -1 - id. Such files are named in warnings; where images have labels, more than 1 % of them
  // (and more than 3) end the run.
  bool mark_broken = false;
  bool strict = false;                                 // a file that cannot be decoded ends the run
  Clock::duration timeout = std::chrono::minutes(10);  // of a leaf's wait for one micro-batch
  std::vector<TraceTrack*> tracks = {};  // one a worker, or none; no other pipeline writes to them
};

// Reads, decodes and augments the split's images on oneTBB threads, into a ring of micro-batches a
// leaf. What comes depends on seed, epoch and sample only, not on the number of workers. The split
// and the stop flag must outlive the source. When decoding fails for good, `stop` is set to
// kInputFailed and ErrorLine() says why. Throws UsageError for options that can't be.
std::unique_ptr<InputSource> MakeImagePipeline(const Split& split, const PipelineOptions& options,
                                               StopFlag& stop);

// Random images and labels, made once a leaf and given again and again, without end: for speed
// measurements. Sample ids are positions in the epoch.
std::unique_ptr<InputSource> MakeSyntheticSource(int64_t height, int64_t width, int64_t channels,
                                                 int64_t classes, const BatchPlan& plan,
                                                 uint64_t seed,
                                                 const std::vector<int>& leaf_os_nodes = {});

struct TensorData {               // the memory is the caller's and must outlive the source
  std::span<const float> images;  // samples x height x width x channels
  std::span<const int32_t> labels;
  int64_t image_floats = 0;  // height * width * channels
};
struct TensorOptions {
  BatchPlan plan;
  uint64_t seed = 0;
  int64_t first_iteration = 0;
  int64_t epochs = 1;
  bool shuffle = false;  // false: micro-batches point into the caller's memory
};
std::unique_ptr<InputSource> MakeTensorSource(const TensorData& data, const TensorOptions& options);

}  // namespace parax
