// Tasks of the gradient server: which slices are ready, who runs them, what follows from them.
#include <algorithm>
#include <bit>
#include <cmath>

#include "parax/base/cycles.h"
#include "parax/gradserver/server_internal.h"

namespace parax {

bool GradientServer::Impl::HasWork(uint32_t owner) const {
  const std::atomic<uint64_t>* work = control.work + owner * control.work_row;
  const size_t words = (layout.tasks.size() + 63) / 64;
  for (size_t i = 0; i < words; ++i) {
    if (work[i].load(std::memory_order_acquire) != 0) return true;
  }
  return false;
}

Outcome GradientServer::Impl::RunReady(Leaf& leaf, bool& ran) {
  if (options.gate == nullptr) return RunSome(leaf, ran);
  // Nothing is claimed before there is a place: others may be let in while this leaf is not.
  if (!HasWork(leaf.owner) || !options.gate->TryEnter(leaf.number)) return Outcome::kOk;
  const Outcome outcome = RunSome(leaf, ran);
  options.gate->Leave(leaf.number);
  return outcome;
}

Outcome GradientServer::Impl::RunSome(Leaf& leaf, bool& ran) {
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
      const uint64_t begin = leaf.slice_cycles != nullptr ? ReadCycles() : 0;
      RunSlice(leaf, layout.tasks[task], slice, iteration);
      if (leaf.slice_cycles != nullptr) *leaf.slice_cycles += ReadCycles() - begin;
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
  const ServerLayout::Share share = layout.tasks[task].shares[owner];
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
  const ServerLayout::Task& t = layout.tasks[task];
  const uint64_t done = control.done[task].n.fetch_add(1, std::memory_order_seq_cst) + 1;
  if (done != iteration * t.slices) return Outcome::kOk;
  switch (t.kind) {
    case TaskKind::kReduce: {
      if (!commit) {
        const ServerLayout::Bucket& bucket = layout.buckets[t.bucket];
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

}  // namespace parax
