#include <algorithm>
#include <numeric>

#include "parax/engine/plan.h"

namespace parax {

int Root(const std::vector<PlanBuffer>& buffers, int b) {
  while (buffers[static_cast<size_t>(b)].shares >= 0) b = buffers[static_cast<size_t>(b)].shares;
  return b;
}

namespace {

void FindLifetimes(Plan& plan, const std::vector<int>& pinned) {
  for (int i = 0; i < static_cast<int>(plan.ops.size()); ++i) {
    for (const PlanArgument& argument : plan.ops[static_cast<size_t>(i)].arguments) {
      if (argument.place != Place::kArena) continue;
      PlanBuffer& buffer = plan.buffers[static_cast<size_t>(Root(plan.buffers, argument.index))];
      if (buffer.first < 0) buffer.first = i;
      buffer.last = std::max({buffer.last, i, plan.ops[static_cast<size_t>(i)].latest});
    }
  }
  const int end = static_cast<int>(plan.ops.size()) - 1;
  for (const int b : pinned) {
    if (b < 0) continue;
    PlanBuffer& buffer = plan.buffers[static_cast<size_t>(Root(plan.buffers, b))];
    buffer.first = 0;
    buffer.last = end;
  }
}

// Lets an op write over the operand that dies in it.
void ShareInPlace(Plan& plan) {
  for (int i = 0; i < static_cast<int>(plan.ops.size()); ++i) {
    const PlanOp& op = plan.ops[static_cast<size_t>(i)];
    if (op.in_place_from < 0 || op.in_place_to < 0) continue;
    const PlanArgument& from = op.arguments[static_cast<size_t>(op.in_place_from)];
    const PlanArgument& to = op.arguments[static_cast<size_t>(op.in_place_to)];
    if (from.place != Place::kArena || to.place != Place::kArena) continue;
    const int source = Root(plan.buffers, from.index);
    const int target = Root(plan.buffers, to.index);
    PlanBuffer& a = plan.buffers[static_cast<size_t>(source)];
    PlanBuffer& b = plan.buffers[static_cast<size_t>(target)];
    if (source == target || a.last != i || b.first != i || a.bytes != b.bytes) continue;
    b.shares = source;
    a.last = b.last;
  }
}

// Greedy by size: the largest buffer first, each at the lowest offset free during its whole life.
void AssignOffsets(Plan& plan) {
  std::vector<int> order;
  for (int b = 0; b < static_cast<int>(plan.buffers.size()); ++b) {
    const PlanBuffer& buffer = plan.buffers[static_cast<size_t>(b)];
    if (buffer.shares < 0 && buffer.first >= 0) order.push_back(b);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return plan.buffers[static_cast<size_t>(a)].bytes > plan.buffers[static_cast<size_t>(b)].bytes;
  });
  const size_t guard = plan.options.guards ? Plan::kGuardBytes : 0;
  const auto space = [&](const PlanBuffer& buffer) {
    return (buffer.bytes + guard + Plan::kAlignment - 1) / Plan::kAlignment * Plan::kAlignment;
  };
  std::vector<const PlanBuffer*> placed;  // by offset
  for (const int b : order) {
    PlanBuffer& buffer = plan.buffers[static_cast<size_t>(b)];
    size_t offset = 0;
    for (const PlanBuffer* other : placed) {
      if (other->last < buffer.first || other->first > buffer.last) continue;
      if (offset + space(buffer) <= other->offset) break;
      offset = std::max(offset, other->offset + space(*other));
    }
    buffer.offset = offset;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + space(buffer));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &buffer,
                                   [](const PlanBuffer* x, const PlanBuffer* y) {
                                     return x->offset < y->offset;
                                   }),
                  &buffer);
  }
}

}  // namespace

void PlanMemory(Plan& plan, const std::vector<int>& pinned) {
  plan.arena_bytes = 0;
  FindLifetimes(plan, pinned);
  ShareInPlace(plan);
  AssignOffsets(plan);
  for (PlanBuffer& buffer : plan.buffers) {
    if (buffer.shares < 0) continue;
    const PlanBuffer& root = plan.buffers[static_cast<size_t>(Root(plan.buffers, buffer.shares))];
    buffer.offset = root.offset;
    buffer.first = root.first;
    buffer.last = root.last;
  }
}

size_t Plan::BytesAtPeak(BufferKind kind) const {
  std::vector<size_t> live(ops.size() + 1, 0);
  std::vector<size_t> of_kind(ops.size() + 1, 0);
  for (const PlanBuffer& buffer : buffers) {
    if (buffer.shares >= 0 || buffer.first < 0) continue;
    for (int i = buffer.first; i <= buffer.last; ++i) {
      live[static_cast<size_t>(i)] += buffer.bytes;
      if (buffer.kind == kind) of_kind[static_cast<size_t>(i)] += buffer.bytes;
    }
  }
  const auto peak = std::max_element(live.begin(), live.end()) - live.begin();
  return of_kind[static_cast<size_t>(peak)];
}

double Plan::flops() const {
  return std::accumulate(ops.begin(), ops.end(), 0.0,
                         [](double sum, const PlanOp& op) { return sum + op.flops; });
}

}  // namespace parax
