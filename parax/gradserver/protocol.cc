#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "parax/gradserver/server_internal.h"

namespace parax {
namespace {

constexpr int kSpins = 500;                        // looks before a leaf goes to sleep
constexpr int64_t kSleepNanoseconds = 20'000'000;  // between looks at stop flag and deadline

}  // namespace

bool GradientServer::Impl::HasWork(uint32_t owner) const {
  const std::atomic<uint64_t>* work = control.work + owner * control.work_row;
  const size_t words = (layout.tasks.size() + 63) / 64;
  for (size_t i = 0; i < words; ++i) {
    if (work[i].load(std::memory_order_acquire) != 0) return true;
  }
  return false;
}

Outcome GradientServer::Impl::RunReady(Leaf& leaf, bool& ran) {
  const std::atomic<uint64_t>* work = control.work + leaf.owner * control.work_row;
  const size_t words = (layout.tasks.size() + 63) / 64;
  for (size_t i = 0; i < words; ++i) {
    uint64_t bits = work[i].load(std::memory_order_acquire);
    for (; bits != 0; bits &= bits - 1) {
      const int task = static_cast<int>(i * 64) + std::countr_zero(bits);
      uint64_t iteration = 0;
      uint32_t slice = 0;
      if (!Claim(task, leaf.owner, iteration, slice)) continue;
      ran = true;
      RunSlice(leaf, layout.tasks[task], slice, iteration);
      return Finish(task, iteration);
    }
  }
  return Outcome::kOk;
}

// A ticket's number tells iteration and slice, so a stale look at `work` can claim nothing wrong:
// the number is good only if its iteration is open. Whoever takes the last ticket of an iteration
// clears the bit before running the slice, and the task cannot open for the next iteration before
// that slice is done: setting and clearing never cross.
bool GradientServer::Impl::Claim(int task, uint32_t owner, uint64_t& iteration, uint32_t& slice) {
  const Layout::Share share = layout.tasks[task].shares[owner];
  std::atomic<uint64_t>& ticket = control.ticket[task * layout.owners + owner].n;
  uint64_t number = ticket.load(std::memory_order_acquire);
  do {
    iteration = number / share.count + 1;
    if (control.opened[task].n.load(std::memory_order_acquire) < iteration) return false;
  } while (!ticket.compare_exchange_weak(number, number + 1, std::memory_order_acq_rel,
                                         std::memory_order_acquire));
  const uint32_t index = static_cast<uint32_t>(number % share.count);
  slice = share.first + index * layout.owners;
  if (index + 1 == share.count) {
    control.work[owner * control.work_row + task / 64].fetch_and(~(uint64_t{1} << task % 64),
                                                                 std::memory_order_acq_rel);
  }
  return true;
}

// Whoever finishes the last slice of a task goes on with what follows from it.
Outcome GradientServer::Impl::Finish(int task, uint64_t iteration) {
  const Layout::Task& t = layout.tasks[task];
  const uint64_t done = control.done[task].n.fetch_add(1, std::memory_order_seq_cst) + 1;
  if (done != iteration * t.slices) return Outcome::kOk;
  switch (t.kind) {
    case TaskKind::kReduce: {
      if (!commit) {
        const Layout::Bucket& bucket = layout.buckets[t.bucket];
        SetLocalRates(bucket.first_parameter, bucket.last_parameter, 1);
        Open(layout.UpdateTask(t.bucket), iteration);
        break;
      }
      const uint64_t buckets = layout.buckets.size();
      const uint64_t reduced_now = control.reduced->n.fetch_add(1, std::memory_order_acq_rel) + 1;
      return reduced_now == iteration * buckets ? Commit(iteration) : Outcome::kOk;
    }
    case TaskKind::kFused:
    case TaskKind::kUpdate:
      control.updated[t.bucket].Publish(iteration);
      break;
    case TaskKind::kMoments:
      control.moments_done->Publish(iteration);
      OpenMoments(iteration + 1);
      break;
  }
  RingAll();
  return Outcome::kOk;
}

void GradientServer::Impl::Open(int task, uint64_t iteration) {
  control.opened[task].n.store(iteration, std::memory_order_release);
  SetWork(task);
}

void GradientServer::Impl::SetWork(int task) {
  for (uint32_t o = 0; o < layout.owners; ++o) {
    if (layout.tasks[task].shares[o].count == 0) continue;
    control.work[o * control.work_row + task / 64].fetch_or(uint64_t{1} << task % 64,
                                                            std::memory_order_acq_rel);
  }
}

void GradientServer::Impl::RingAll() {
  for (uint32_t o = 0; o < layout.owners; ++o) control.bell[o].Ring();
}

void GradientServer::Impl::OpenBucket(int bucket, uint64_t iteration) {
  BucketWords& words = control.bucket[bucket];
  uint16_t* const active = control.active + bucket * control.active_row;
  double weight = 0;
  words.active = 0;
  for (size_t l = 0; l < leaves.size(); ++l) {
    const LeafWords& leaf = control.leaf[2 * l + iteration % 2];
    if (leaf.samples == 0) continue;
    weight += leaf.weight;
    active[words.active++] = static_cast<uint16_t>(l);
  }
  words.inverse_weight = weight > 0 ? static_cast<float>(1 / weight) : 0;
  words.rate = control.leaf[iteration % 2].rate;
  Open(layout.FirstTask(bucket), iteration);
  RingAll();
}

// Unlike a bucket's, the moments of an iteration may all be there before those of the one before
// are pooled: nobody's forward pass waits for them. So arrivals count by parity (a leaf comes to
// iteration + 2 only when `iteration` is pooled), the last to arrive and the last to pool both look
// whether the next may open, and one of them wins the exchange.
void GradientServer::Impl::OpenMoments(uint64_t iteration) {
  const int task = layout.MomentTask();
  const uint64_t arrived = control.moments_arrived[iteration % 2].n.load(std::memory_order_seq_cst);
  const uint64_t done = control.done[task].n.load(std::memory_order_seq_cst);
  if (arrived < Control::MomentArrivals(iteration, leaves.size())) return;
  if (done < (iteration - 1) * layout.tasks[task].slices) return;
  uint64_t before = iteration - 1;
  if (!control.opened[task].n.compare_exchange_strong(before, iteration)) return;
  SetWork(task);
  RingAll();
}

Outcome GradientServer::Impl::Commit(uint64_t iteration) {
  double squares = 0;
  for (size_t c = 0; c < layout.chunks.size(); ++c) squares += control.gradient_squares[c];
  if (!std::isfinite(squares)) {
    // Named in forward order, so from the last parameter down. Nothing opens the updates any more.
    int parameter = static_cast<int>(layout.parameters.size()) - 1;
    while (parameter > 0 && std::isfinite(Norm(control.gradient_squares, parameter))) --parameter;
    stop.Fail(Outcome::kNotFinite, "gradient of parameter", parameter);
    RingAll();
    return Outcome::kNotFinite;
  }
  const double norm = std::sqrt(squares);
  const double clip = options.clip_norm > 0 ? std::min(1.0, options.clip_norm / (norm + 1e-6)) : 1;
  RecordWords& record = control.record[iteration % Control::kRecords];
  record.iteration.store(0, std::memory_order_release);
  record.norm.store(norm, std::memory_order_release);
  record.clip.store(clip, std::memory_order_release);
  record.iteration.store(iteration, std::memory_order_release);
  if (lars) SetLocalRates(0, static_cast<int>(layout.parameters.size()), clip);
  for (int b = layout.bucket_count() - 1; b >= 0; --b) Open(layout.UpdateTask(b), iteration);
  RingAll();
  return Outcome::kOk;
}

Outcome GradientServer::Impl::Await(Leaf& leaf, const Sequence& sequence, uint64_t n, WaitName name,
                                    int bucket) {
  if (sequence.reached(n)) return Outcome::kOk;
  const Clock::time_point deadline = Clock::now() + options.wait_timeout;
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
    const uint32_t seen = bell.now();
    if (HasWork(leaf.owner)) continue;
    if (sequence.reached(n)) return Outcome::kOk;
    if (Clock::now() >= deadline) {
      if (bucket >= 0) NameMissingLeaf(bucket, n, name);
      stop.Fail(Outcome::kTimeout, name.what, name.index);
      return Outcome::kTimeout;
    }
    bell.Sleep(seen, kSleepNanoseconds);
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
