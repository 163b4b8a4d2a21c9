#include "parax/data/pipeline.h"

#include <fmt/core.h>
#include <oneapi/tbb/enumerable_thread_specific.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "parax/base/bell.h"
#include "parax/base/error.h"
#include "parax/base/sequence.h"
#include "parax/data/binding_internal.h"
#include "parax/data/cursor.h"
#include "parax/data/sample_decoder.h"
#include "parax/numa/arena.h"

namespace parax {
namespace {

// Samples that one task decodes: so many that it lasts well over the microsecond a task costs.
int64_t SamplesPerTask(int image_size) {
  return std::max<int64_t>(1, 16 * 1024 / (int64_t{image_size} * image_size));
}

// The place of one micro-batch. Its memory belongs to the decoding side from Release (seen through
// Ring::released) until `ready` is published, then to the leaf.
struct Slot {
  Sequence ready;  // 1 + number of the micro-batch in it; written by its last decoder
  float* images = nullptr;
  float* probabilities = nullptr;
  int32_t* labels = nullptr;
  int64_t* ids = nullptr;
  int64_t iteration = 0;
  int micro = 0;
  int64_t count = 0;
  std::atomic<int64_t> missing{0};  // samples not decoded yet
};

// One leaf's slots. Micro-batch number n (counted from where the run starts) lies in slot n % size.
struct Ring {
  Ring(const LeafCursor& start, size_t slot_count) : next(start), taken(start), slots(slot_count) {}

  Sequence released;  // micro-batches given back; written by the leaf
  // Decoding side only:
  LeafCursor next;  // the micro-batch to be given to tasks next
  int64_t next_number = 0;
  int64_t next_offset = 0;  // its samples given to tasks already
  // The leaf only:
  alignas(64) LeafCursor taken;
  int64_t taken_number = 0;

  std::vector<Slot> slots;
  Arena memory;

  Slot& slot(int64_t number) { return slots[static_cast<size_t>(number) % slots.size()]; }
  bool HasWork() const {
    return !next.ended() && next_number - static_cast<int64_t>(released.value()) <
                                static_cast<int64_t>(slots.size());
  }
};

// What one task decodes: some samples of one micro-batch.
struct Chunk {
  int leaf = 0;
  int64_t number = 0;  // of the micro-batch
  int64_t offset = 0;  // of the first sample in it
  int64_t count = 0;
  int64_t position = 0;  // of the first sample in the epoch's order
  int64_t epoch = 0;
};

class ImagePipeline final : public InputSource {
 public:
  ImagePipeline(const Split& split, const PipelineOptions& options, StopFlag& stop)
      : options_(options),
        stop_(stop),
        samples_(split, options),
        per_task_(SamplesPerTask(options.transform.image_size)),
        arena_(options.workers, 1),
        more_threads_(tbb::global_control::max_allowed_parallelism,
                      std::max(static_cast<size_t>(options.workers),
                               tbb::global_control::active_value(
                                   tbb::global_control::max_allowed_parallelism))),
        binding_(arena_, options.worker_pus),
        workers_([this] { return std::make_unique<SampleDecoder::Worker>(options_.transform); }) {
    for (int leaf = 0; leaf < options.plan.leaves; ++leaf) MakeRing(leaf);
    handed_.fetch_add(1, std::memory_order_release);
    dispatcher_ = std::thread([this] { Dispatch(); });
  }

  ~ImagePipeline() override {
    closing_.store(true, std::memory_order_release);
    bell_.Ring();
    dispatcher_.join();
    (void)handed_.load(std::memory_order_acquire);
  }

  Outcome Acquire(int leaf, MicroBatch& batch) noexcept override {
    Ring& ring = rings_[static_cast<size_t>(leaf)];
    batch = {};
    if (ring.taken.ended()) return Outcome::kOk;
    const Slot& slot = ring.slot(ring.taken_number);
    const Outcome outcome = slot.ready.Wait(static_cast<uint64_t>(ring.taken_number) + 1, stop_,
                                            options_.timeout, {"decoded input of leaf", leaf});
    if (outcome != Outcome::kOk) return outcome;
    batch = {.images = slot.images,
             .labels = slot.labels,
             .probabilities = slot.probabilities,
             .sample_ids = slot.ids,
             .count = slot.count};
    return Outcome::kOk;
  }

  void Release(int leaf) noexcept override {
    Ring& ring = rings_[static_cast<size_t>(leaf)];
    ring.taken.Advance();
    ring.released.Publish(static_cast<uint64_t>(++ring.taken_number));
    bell_.Ring();
  }

  std::string ErrorLine() const override {
    const std::lock_guard lock(error_mutex_);
    return error_;
  }

  // The stages, called by oneTBB: takes a chunk, decodes it.
  Chunk operator()(tbb::flow_control& control) {
    Chunk chunk;
    (void)handed_.load(std::memory_order_acquire);
    if (!NextChunk(chunk)) control.stop();
    handed_.fetch_add(1, std::memory_order_release);
    return chunk;
  }
  void operator()(const Chunk& chunk) {
    Decode(chunk);
    handed_.fetch_add(1, std::memory_order_release);
  }

 private:
  void MakeRing(int leaf);
  void Dispatch();
  bool NextChunk(Chunk& chunk);
  Ring* EarliestRing(int& leaf);
  void Decode(const Chunk& chunk);
  void Complete(const Chunk& chunk, Slot& slot);
  void Fail(const char* what);
  // This thread's: of its place in the arena, which has no other thread at the same time.
  TraceTrack* Track() const {
    const auto place = static_cast<size_t>(tbb::this_task_arena::current_thread_index());
    return place < options_.tracks.size() ? options_.tracks[place] : nullptr;
  }
  bool over() const { return closing_.load(std::memory_order_acquire) || stop_.stopped(); }

  const PipelineOptions options_;
  StopFlag& stop_;
  SampleDecoder samples_;
  const int64_t per_task_;
  std::deque<Ring> rings_;  // a leaf each; Ring can't move
  Bell bell_;               // rung by every Release
  std::atomic<bool> closing_{false};
  // Hands what oneTBB's threads work on from one to the next, and to the destructor. oneTBB does so
  // too, but ThreadSanitizer cannot look into its library.
  std::atomic<uint64_t> handed_{0};
  mutable std::mutex error_mutex_;
  std::string error_;

  tbb::task_arena arena_;
  tbb::global_control more_threads_;  // oneTBB alone starts no more threads than there are cores
  ArenaBinding binding_;
  tbb::enumerable_thread_specific<std::unique_ptr<SampleDecoder::Worker>> workers_;
  std::thread dispatcher_;
};

void ImagePipeline::MakeRing(int leaf) {
  const BatchPlan& plan = options_.plan;
  const int64_t end = options_.epochs * plan.IterationsPerEpoch();
  Ring& ring = rings_.emplace_back(LeafCursor(plan, leaf, options_.first_iteration, end),
                                   static_cast<size_t>(options_.prefetch));
  const size_t count = static_cast<size_t>(std::min(plan.micro_batch, plan.Share(0, leaf).count));
  const auto aligned = [](size_t bytes) { return (bytes + 63) / 64 * 64; };
  const size_t images =
      aligned(count * static_cast<size_t>(samples_.image_floats()) * sizeof(float));
  const size_t probabilities =
      options_.mix.enabled()
          ? aligned(count * static_cast<size_t>(options_.classes) * sizeof(float))
          : 0;
  const size_t labels = aligned(count * sizeof(int32_t));
  const size_t ids = aligned(count * sizeof(int64_t));
  const size_t slot_bytes = images + probabilities + labels + ids;
  if (count == 0) return;
  const auto& nodes = options_.leaf_os_nodes;
  ring.memory = Arena(slot_bytes * ring.slots.size(),
                      {.os_node = nodes.empty() ? -1 : nodes.at(static_cast<size_t>(leaf))});
  std::byte* memory = ring.memory.data();
  for (Slot& slot : ring.slots) {
    slot.images = reinterpret_cast<float*>(memory);
    if (probabilities > 0) slot.probabilities = reinterpret_cast<float*>(memory + images);
    slot.labels = reinterpret_cast<int32_t*>(memory + images + probabilities);
    slot.ids = reinterpret_cast<int64_t*>(memory + images + probabilities + labels);
    memory += slot_bytes;
  }
}

// The dispatcher is one of the arena's threads; all of them take chunks and decode. A chunk is
// always carried to its end by the thread that took it, so the one that waits for work (inside
// NextChunk) never holds any.
void ImagePipeline::Dispatch() {
  try {
    arena_.execute([&] {
      tbb::parallel_pipeline(
          static_cast<size_t>(options_.workers),
          tbb::make_filter<void, Chunk>(tbb::filter_mode::serial_in_order, std::ref(*this)) &
              tbb::make_filter<Chunk, void>(tbb::filter_mode::parallel, std::ref(*this)));
    });
  } catch (const std::exception& error) {
    Fail(error.what());
  }
}

// Of the leaves with a free slot, the one whose next micro-batch is needed first.
Ring* ImagePipeline::EarliestRing(int& leaf) {
  Ring* best = nullptr;
  for (size_t i = 0; i < rings_.size(); ++i) {
    Ring& ring = rings_[i];
    if (!ring.HasWork()) continue;
    const auto key = [](const Ring& r) { return std::pair(r.next.iteration(), r.next.micro()); };
    if (best == nullptr || key(ring) < key(*best)) {
      best = &ring;
      leaf = static_cast<int>(i);
    }
  }
  return best;
}

bool ImagePipeline::NextChunk(Chunk& chunk) {
  Ring* ring = nullptr;
  for (;;) {
    if (over()) return false;
    const uint32_t rung = bell_.count();
    ring = EarliestRing(chunk.leaf);
    if (ring != nullptr) break;
    if (std::all_of(rings_.begin(), rings_.end(), [](const Ring& r) { return r.next.ended(); })) {
      return false;
    }
    bell_.Wait(rung, std::chrono::milliseconds(20));  // between looks at the stop flag
  }
  const BatchPlan::Piece piece = ring->next.piece();
  if (ring->next_offset == 0) {
    Slot& slot = ring->slot(ring->next_number);
    slot.iteration = ring->next.iteration();
    slot.micro = ring->next.micro();
    slot.count = piece.count;
    slot.missing.store(piece.count, std::memory_order_relaxed);
  }
  chunk.number = ring->next_number;
  chunk.offset = ring->next_offset;
  chunk.count = std::min(per_task_, piece.count - ring->next_offset);
  chunk.position = piece.first + ring->next_offset;
  chunk.epoch = ring->next.epoch();
  ring->next_offset += chunk.count;
  if (ring->next_offset == piece.count) {
    ring->next.Advance();
    ++ring->next_number;
    ring->next_offset = 0;
  }
  return true;
}

void ImagePipeline::Decode(const Chunk& chunk) {
  Slot& slot = rings_[static_cast<size_t>(chunk.leaf)].slot(chunk.number);
  TraceTimer timer(Track());
  const Permutation order(options_.plan.samples, options_.seed, static_cast<uint64_t>(chunk.epoch));
  try {
    SampleDecoder::Worker& worker = *workers_.local();
    for (int64_t k = 0; k < chunk.count; ++k) {
      if (over()) return;
      const int64_t position = chunk.position + k;
      const int64_t i = chunk.offset + k;
      const int64_t sample = options_.shuffle ? order(position) : position;
      slot.ids[i] = samples_.Decode(sample, static_cast<uint64_t>(chunk.epoch), worker,
                                    slot.images + i * samples_.image_floats());
      slot.labels[i] = slot.ids[i] < 0 ? -1 : samples_.label(sample);
    }
    const auto iteration = static_cast<uint64_t>(slot.iteration) + 1;
    if (slot.missing.fetch_sub(chunk.count, std::memory_order_acq_rel) == chunk.count) {
      Complete(chunk, slot);
    }
    timer.Note({0, 0, iteration, 0, static_cast<uint16_t>(chunk.count), TraceKind::kDecode});
  } catch (const std::exception& error) {
    Fail(error.what());
  }
}

void ImagePipeline::Complete(const Chunk& chunk, Slot& slot) {
  if (options_.mix.enabled()) {
    // Of the micro-batch's place in the run, so a resumed run mixes alike.
    RandomStream random(
        options_.seed, RandomUse::kMix, static_cast<uint64_t>(slot.iteration),
        static_cast<uint64_t>(chunk.leaf) << 32 | static_cast<uint32_t>(slot.micro));
    const int size = options_.transform.image_size;
    MixBatch(options_.mix, random, slot.images, slot.count, size, size, 3, slot.labels,
             options_.classes, slot.probabilities);
  }
  slot.ready.Publish(static_cast<uint64_t>(chunk.number) + 1);
}

void ImagePipeline::Fail(const char* what) {
  {
    const std::lock_guard lock(error_mutex_);
    if (error_.empty()) error_ = what;
  }
  stop_.Fail(Outcome::kInputFailed, "input pipeline", 0);
}

}  // namespace

std::unique_ptr<InputSource> MakeImagePipeline(const Split& split, const PipelineOptions& options,
                                               StopFlag& stop) {
  const BatchPlan& plan = options.plan;
  if (plan.samples != split.size()) {
    FailUsage("a plan for {} samples does not fit {} images", plan.samples, split.size());
  }
  if (plan.IterationsPerEpoch() == 0) {
    FailUsage("{} images do not fill one batch of {}{}", plan.samples, plan.batch,
              plan.drop_last ? ": use a smaller batch, or keep the last one" : "");
  }
  if (options.workers < 1) FailUsage("{} decoding threads: at least 1 is needed", options.workers);
  if (options.prefetch < 1) FailUsage("prefetch {}: at least 1 is needed", options.prefetch);
  if (options.mix.enabled() && options.classes < 1) FailUsage("mixing needs the number of classes");
  CheckTransformOptions(options.transform);
  return std::make_unique<ImagePipeline>(split, options, stop);
}

}  // namespace parax
