// What leaves call: waiting, publishing, helping.
#include <immintrin.h>

#include "parax/gradserver/server_internal.h"

namespace parax {
namespace {

constexpr int kSpins = 500;                      // looks before a leaf goes to sleep
constexpr std::chrono::milliseconds kSleep{20};  // between looks at stop flag and deadline

}  // namespace

Outcome GradientServer::Impl::Await(Leaf& leaf, const Sequence& sequence, uint64_t n, WaitName name,
                                    int bucket) {
  if (sequence.reached(n)) return Outcome::kOk;
  WaitingTime waited;
  Bell& bell = control.bell[leaf.owner];
  for (int idle = 0;;) {
    bool ran = false;
    if (const Outcome outcome = RunReady(leaf, ran); outcome != Outcome::kOk) return outcome;
    if (sequence.reached(n)) return Outcome::kOk;
    if (stop.stopped()) return Outcome::kStopped;
    if (ran) {
      idle = 0;
      continue;
    }
    if (++idle < kSpins) {
      _mm_pause();
      continue;
    }
    // Looking again after `seen` was read: whatever happens later rings, and the sleep ends.
    const uint32_t seen = bell.count();
    if (HasWork(leaf.owner)) {
      if (options.gate == nullptr) continue;
      const Outcome outcome = options.gate->AwaitRoom(leaf.number);
      if (outcome != Outcome::kOk) return outcome;
      continue;
    }
    if (sequence.reached(n)) return Outcome::kOk;
    if (waited.Reaches(options.wait_timeout)) {
      if (bucket >= 0) NameMissingLeaf(bucket, n, name);
      stop.Fail(Outcome::kTimeout, name.what, name.index);
      return Outcome::kTimeout;
    }
    bell.Wait(seen, kSleep);
  }
}

Outcome GradientServer::Impl::AwaitUpdate(Leaf& leaf, int bucket, uint64_t n) {
  return Await(leaf, control.updated[bucket], n, {"update of bucket", bucket}, bucket);
}

// An update that does not come mostly lacks a leaf's gradients: then the leaf is what to look at.
void GradientServer::Impl::NameMissingLeaf(int bucket, uint64_t n, WaitName& name) const {
  // Under kCommit every update waits for all buckets.
  const int first = commit ? 0 : bucket;
  const int last = commit ? layout.bucket_count() : bucket + 1;
  for (size_t l = 0; l < leaves.size(); ++l) {
    const std::atomic<uint64_t>* published = control.published + l * control.published_row;
    for (int b = first; b < last; ++b) {
      if (published[b].load(std::memory_order_acquire) >= n) continue;
      name = {"gradients of leaf", static_cast<int64_t>(l)};
      return;
    }
  }
}

Outcome GradientServer::Impl::AwaitMoments(Leaf& leaf, uint64_t n) {
  if (options.moments.empty()) return Outcome::kOk;
  return Await(leaf, *control.moments_done, n,
               {"running statistics of iteration", static_cast<int64_t>(n)});
}

Outcome GradientServer::BeginIteration(int leaf, uint64_t iteration, double learning_rate,
                                       int64_t samples) {
  Impl::Leaf& self = impl_->leaves[leaf];
  // The words and moment slots of iteration - 2 are written over. A leaf without samples may
  // publish without having read a parameter, so it waits here for what others wait for there.
  const uint64_t before = iteration > 2 ? iteration - 2 : 0;
  const uint64_t updates = samples == 0 ? iteration - 1 : before;
  for (int b = impl_->layout.bucket_count() - 1; b >= 0; --b) {
    const Outcome outcome = impl_->AwaitUpdate(self, b, updates);
    if (outcome != Outcome::kOk) return outcome;
  }
  if (const Outcome outcome = impl_->AwaitMoments(self, before); outcome != Outcome::kOk) {
    return outcome;
  }
  self.iteration = iteration;
  impl_->control.leaf[2 * leaf + iteration % 2] = {.weight = static_cast<double>(samples),
                                                   .rate = learning_rate,
                                                   .samples = samples,
                                                   .micro_batches = 0};
  return Outcome::kOk;
}

void GradientServer::SetWeight(int leaf, double weight) {
  impl_->control.leaf[2 * leaf + impl_->leaves[leaf].iteration % 2].weight = weight;
}

Outcome GradientServer::AwaitBucket(int leaf, int bucket) {
  Impl::Leaf& self = impl_->leaves[leaf];
  return impl_->AwaitUpdate(self, bucket, self.iteration - 1);
}

void GradientServer::Publish(int leaf, int bucket) {
  const uint64_t iteration = impl_->leaves[leaf].iteration;
  Control& control = impl_->control;
  control.published[leaf * control.published_row + bucket].store(iteration,
                                                                 std::memory_order_release);
  const uint64_t all = iteration * impl_->leaves.size();
  if (control.arrived[bucket].n.fetch_add(1, std::memory_order_acq_rel) + 1 == all) {
    impl_->OpenBucket(bucket, iteration);
  }
}

float* GradientServer::moment_mean(int leaf, int moment, int micro) {
  return impl_->MomentSlot(leaf, moment, micro, false);
}

float* GradientServer::moment_variance(int leaf, int moment, int micro) {
  return impl_->MomentSlot(leaf, moment, micro, true);
}

void GradientServer::SetMomentCount(int leaf, int moment, int micro, double count) {
  Impl::Leaf& self = impl_->leaves[leaf];
  self.counts[impl_->CountIndex(self.iteration, moment, micro)] = count;
}

void GradientServer::PublishMoments(int leaf, int micro_batches) {
  if (impl_->options.moments.empty()) return;
  const uint64_t iteration = impl_->leaves[leaf].iteration;
  Control& control = impl_->control;
  control.leaf[2 * leaf + iteration % 2].micro_batches = micro_batches;
  control.moments_arrived[iteration % 2].n.fetch_add(1, std::memory_order_seq_cst);
  impl_->OpenMoments(iteration);
}

Outcome GradientServer::Help(int leaf) {
  bool ran = false;
  return impl_->RunReady(impl_->leaves[leaf], ran);
}

Outcome GradientServer::EndIteration(int leaf) {
  if (impl_->stop.stopped()) return Outcome::kStopped;
  return Help(leaf);
}

Outcome GradientServer::Drain(int leaf) {
  Impl::Leaf& self = impl_->leaves[leaf];
  for (int b = impl_->layout.bucket_count() - 1; b >= 0; --b) {
    const Outcome outcome = impl_->AwaitUpdate(self, b, self.iteration);
    if (outcome != Outcome::kOk) return outcome;
  }
  return impl_->AwaitMoments(self, self.iteration);
}

CommitRecord GradientServer::record(uint64_t iteration) const {
  if (!impl_->commit) return {.iteration = iteration};
  const RecordWords& words = impl_->control.record[iteration % Control::kRecords];
  CommitRecord record;
  record.iteration = words.iteration.load(std::memory_order_acquire);
  record.gradient_norm = words.norm.load(std::memory_order_acquire);
  record.clip_factor = words.clip.load(std::memory_order_acquire);
  // Not there yet, gone, or being written over.
  const uint64_t again = words.iteration.load(std::memory_order_acquire);
  if (record.iteration != iteration || again != iteration) return {};
  return record;
}

}  // namespace parax
