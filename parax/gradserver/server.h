#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parax/base/outcome.h"
#include "parax/base/stop.h"
#include "parax/gradserver/index_map.h"
#include "parax/gradserver/optimizer.h"

namespace parax {

// One trainable tensor. Its master copy, gradients and optimizer states are float arrays of
// `elements` in one common order (the weight-gradient kernel's); padding lanes are zero in all.
struct ParameterSpec {
  std::string name;
  size_t elements = 0;
  bool decay = true;            // weight decay and LARS scaling apply
  std::vector<IndexMap> forms;  // packed copies kernels read; one set a domain
};

// Running statistics of one batch norm: pooled from the instances' batch statistics.
struct MomentSpec {
  std::string name;
  int64_t channels = 0;
  double momentum = 0.1;  // running = (1 - momentum) running + momentum batch
};

enum class UpdatePolicy : uint8_t {
  kEager,   // a bucket is updated as soon as it is reduced
  kCommit,  // all gradients are reduced first, then one record decides: clip factor, all finite
};

// Where access-intensive work of a domain has places: slices that leaves run take one each. Hot.
class SliceGate {
 public:
  virtual ~SliceGate() = default;
  virtual bool TryEnter(int leaf) noexcept = 0;
  virtual void Leave(int leaf) noexcept = 0;
  virtual Outcome AwaitRoom(int leaf) noexcept = 0;  // until TryEnter may succeed
};

struct ServerOptions {
  std::vector<ParameterSpec> parameters;  // backward order: [0] has its gradient first
  std::vector<MomentSpec> moments;
  std::vector<int> leaf_domain;  // one a leaf (instance): its domain; size() leaves
  std::vector<int> domain_node;  // OS NUMA node of each domain (-1: none); size() domains
  int max_micro_batches = 1;     // a leaf takes through in one iteration
  OptimizerOptions optimizer;
  UpdatePolicy policy = UpdatePolicy::kCommit;
  double clip_norm = 0;  // 0: no clipping; else policy must be kCommit
  // Of the weights' exponential moving average; 0: none. Iteration t uses min(ema_decay, (1 + t) /
  // (10 + t)), so that the initial weights are forgotten also in short runs.
  double ema_decay = 0;
  int reduce_group = 4;  // leaves folded left together; groups combine in a balanced tree
  size_t bucket_bytes = size_t{1} << 20;  // consecutive parameters are gathered up to this
  size_t slice_bytes = size_t{1} << 17;   // part of a bucket that one worker reduces at once
  Clock::duration wait_timeout = std::chrono::minutes(10);
  SliceGate* gate = nullptr;  // null: places for all; outlives the server
};

// What was decided for one iteration.
struct CommitRecord {
  uint64_t iteration = 0;
  double gradient_norm = 0;  // of the mean gradient, before clipping; 0 under kEager
  double clip_factor = 1;
};

// Parameters, gradients and optimizer states in shared memory, and the protocol by which leaves
// (instances) combine their gradients. See docs/design/gradient-server.md.
//
// Iterations count from 1. In iteration t a leaf: BeginIteration; before it first reads a bucket's
// parameters, AwaitBucket (so that update t-1 is in); writes its gradients SUMMED over its samples;
// Publish(bucket) once they are complete and it reads these parameters no more in t;
// PublishMoments; EndIteration. Between ops it calls Help. No barrier: a leaf may be in t+1 while
// another is in t. Results depend on leaf numbers only, not on timing or domains.
//
// A leaf without samples in t says so with BeginIteration(samples = 0) and publishes all the same.
class GradientServer {
 public:
  GradientServer(ServerOptions options, StopFlag& stop);  // setup; throws Error / UsageError
  ~GradientServer();

  // ---- Setup, and drained state only (nobody inside an iteration) ----
  int buckets() const;
  int bucket_of(int parameter) const;
  std::span<float> master(int parameter);
  std::span<float> ema(int parameter);  // empty without EMA; holds nothing before update 1
  std::span<float> state(int parameter, int index);  // optimizer state `index` (StateNames order)
  std::span<float> running_mean(int moment);
  std::span<float> running_variance(int moment);
  const float* form(int domain, int parameter, int form) const;  // stable address
  float* gradient(int leaf, int parameter);                      // stable address
  // Rewrites every packed form from the master (after loading or initialising).
  void RefreshForms();
  // The leaf's thread adds to `cycles` what it spends in slices (base/cycles.h); null: it does not.
  void CountSlices(int leaf, uint64_t* cycles);
  // Says that `iteration` updates are in already (0: fresh; > 0: resumed, so that masters, states,
  // EMA and running statistics are those after it). Resets the protocol; forms stay as they are.
  void StartAt(uint64_t iteration);
  // Every domain's packed forms hold the EMA weights (for evaluation) or the master's again (before
  // the next iteration). Before update 1 the average is the weights themselves.
  void UseEma(bool use);

  // ---- Hot: called by the leaf's own thread; no allocation, lock or log ----
  // `weight`: what this leaf's loss sum counts for in the mean (samples, or their class weights).
  // 0 with samples == 0. May be set later, before the first Publish, through SetWeight.
  Outcome BeginIteration(int leaf, uint64_t iteration, double learning_rate, int64_t samples);
  void SetWeight(int leaf, double weight);
  Outcome AwaitBucket(int leaf, int bucket);
  // Once an iteration and bucket, after this iteration's AwaitBucket (without samples: after
  // BeginIteration). Under kCommit AwaitBucket, Help ... may return kNotFinite; others see
  // kStopped.
  void Publish(int leaf, int bucket);
  // Batch mean and biased variance of micro-batch `micro` over `count` values a channel.
  float* moment_mean(int leaf, int moment, int micro);
  float* moment_variance(int leaf, int moment, int micro);
  void SetMomentCount(int leaf, int moment, int micro, double count);
  // Once an iteration; slots and counts of the first `micro_batches` must be set.
  void PublishMoments(int leaf, int micro_batches);
  Outcome Help(int leaf);  // runs at most one ready slice (< 200 us)
  Outcome EndIteration(int leaf);
  Outcome Drain(int leaf);  // helps until all updates of the leaf's last iteration are in
  // Kept for the last 8 iterations; .iteration is 0 where there is none (yet, or any more).
  CommitRecord record(uint64_t iteration) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace parax
