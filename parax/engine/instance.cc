#include "parax/engine/instance.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "parax/engine/overlap.h"
#include "parax/engine/plan_buckets.h"
#include "parax/layers/elementwise.h"

namespace parax {
namespace {

constexpr uint32_t kSignallingNan =
    0x7fa07fa0;  // fills dead buffers in debugging plans; two of bf16

size_t RoundUp(size_t bytes) {
  return (bytes + Plan::kAlignment - 1) / Plan::kAlignment * Plan::kAlignment;
}

// Bytes the gradients of one op take in scratch.
size_t GradientBytes(const Plan& plan, const PlanOp& op) {
  size_t bytes = 0;
  for (const PlanArgument& argument : op.arguments) {
    if (argument.place != Place::kGradient) continue;
    bytes += RoundUp(plan.params[static_cast<size_t>(argument.index)].grad.bytes());
  }
  return bytes;
}

}  // namespace

Instance::~Instance() {
  if (wiring_.memory != nullptr) wiring_.memory->Give(std::move(arena_), wiring_.os_node);
}

void Instance::Prepare(std::vector<const Plan*> plans) {
  size_t bytes = 0;
  size_t scratch = 0;
  for (const Plan* plan : plans) {
    bytes = std::max(bytes, plan->arena_bytes);
    for (const PlanOp& op : plan->ops) scratch = std::max(scratch, GradientBytes(*plan, op));
  }
  gradient_scratch_ = RoundUp(bytes);
  bytes = gradient_scratch_ + scratch;
  arena_ = wiring_.memory != nullptr ? wiring_.memory->Take(bytes, wiring_.os_node)
                                     : Arena(bytes, {.os_node = wiring_.os_node});
  plans_.clear();
  for (const Plan* plan : plans) plans_.push_back(Bind(*plan));
  for (const BoundPlan& bound : plans_) deferred_.reserve(bound.ops.size());
  if (wiring_.spare_crowded) loss_.Begin();
  if (wiring_.server != nullptr) open_.resize(static_cast<size_t>(wiring_.server->buckets()));
}

void* Instance::Address(const Plan& plan, const PlanArgument& argument, float* gradient) {
  switch (argument.place) {
    case Place::kArena:
      return At<std::byte>(argument.index, plan);
    case Place::kForm:
      return const_cast<void*>(wiring_.store->Form(wiring_.domain, plan, argument.index));
    case Place::kState:
      return const_cast<float*>(wiring_.store->State(argument.index));
    case Place::kGradient:
      return gradient;
  }
  return nullptr;
}

Instance::BoundPlan Instance::Bind(const Plan& plan) {
  BoundPlan bound;
  bound.plan = &plan;
  for (const PlanOp& op : plan.ops) {
    BoundOp& made = bound.ops.emplace_back();
    std::vector<void*> first, later;
    std::byte* scratch = arena_.data() + gradient_scratch_;
    for (const PlanArgument& argument : op.arguments) {
      if (argument.place != Place::kGradient) {
        first.push_back(Address(plan, argument, nullptr));
        later.push_back(first.back());
        continue;
      }
      const PlanParam& param = plan.params[static_cast<size_t>(argument.index)];
      float* slot =
          wiring_.server->gradient(wiring_.leaf, wiring_.store->ServerParameter(argument.index));
      first.push_back(slot);
      later.push_back(scratch);
      void* const both[] = {slot, scratch};
      made.added.push_back(MakeAccumulate(param.grad.elements(), plan.options.threads)->Bind(both));
      scratch += RoundUp(param.grad.bytes());
    }
    made.first = op.kernel->Bind(first);
    if (!made.added.empty()) made.later = op.kernel->Bind(later);
  }
  FindBuckets(bound);
  const std::vector<NextOp> next = SchedulerOps(plan, wiring_.rates);
  for (size_t i = 0; i < bound.ops.size(); ++i) {
    bound.ops[i].next = next[i];
    bound.ops[i].latest = plan.ops[i].latest;
  }
  if (plan.options.guards) {
    for (const PlanBuffer& buffer : plan.buffers) {
      if (buffer.shares >= 0 || buffer.last < 0) continue;
      bound.ops[static_cast<size_t>(buffer.last)].dying.emplace_back(buffer.offset, buffer.bytes);
    }
  }
  return bound;
}

void Instance::FindBuckets(BoundPlan& bound) const {
  const Plan& plan = *bound.plan;
  if (plan.options.mode != Mode::kTraining || wiring_.server == nullptr) return;
  std::vector<int> bucket_of;
  for (size_t p = 0; p < plan.params.size(); ++p) {
    const int parameter = wiring_.store->ServerParameter(static_cast<int>(p));
    bucket_of.push_back(parameter < 0 ? -1 : wiring_.server->bucket_of(parameter));
  }
  bound.uses.resize(static_cast<size_t>(wiring_.server->buckets()));
  std::vector<OpBuckets> buckets = BucketsOf(plan, bucket_of);
  for (size_t i = 0; i < buckets.size(); ++i) {
    for (const int bucket : buckets[i].uses) ++bound.uses[static_cast<size_t>(bucket)];
    bound.ops[i].await = std::move(buckets[i].awaits);
    bound.ops[i].uses = std::move(buckets[i].uses);
  }
}

void Instance::CopyInput(const Plan& plan, const MicroBatch& batch) {
  const size_t count = static_cast<size_t>(batch.count);
  const PlanBuffer& images = plan.buffers[static_cast<size_t>(plan.images)];
  if (images.dtype == DType::kBF16) {
    Convert(batch.images, At<BFloat16>(plan.images, plan), images.bytes / sizeof(BFloat16),
            plan.options.threads);
  } else {
    std::memcpy(At<float>(plan.images, plan), batch.images, images.bytes);
  }
  std::memcpy(At<int32_t>(plan.labels, plan), batch.labels, count * sizeof(int32_t));
  if (plan.targets >= 0) {
    float* targets = At<float>(plan.targets, plan);
    const size_t classes = static_cast<size_t>(plan.options.loss.classes);
    std::memcpy(targets, batch.probabilities, count * classes * sizeof(float));
  }
}

Instance::BoundPlan* Instance::Begin(Mode mode, const MicroBatch& batch) {
  for (BoundPlan& bound : plans_) {
    const Plan& plan = *bound.plan;
    if (plan.options.mode != mode || plan.options.batch != batch.count) continue;
    last_ = &bound;
    if (plan.options.guards) FillDead(0, plan.arena_bytes);
    CopyInput(plan, batch);
    return &bound;
  }
  wiring_.stop->Fail(Outcome::kKernelFailed, "no plan for a micro-batch of size", batch.count);
  return nullptr;
}

std::string Instance::FirstNonFinite(const RunContext& context) {
  if (last_ == nullptr) return "unknown";
  const Plan& plan = *last_->plan;
  const auto finite = [&](int buffer) {
    const PlanBuffer& b = plan.buffers[static_cast<size_t>(buffer)];
    return WithElement(b.dtype, [&]<typename T>(T) {
      const T* values = reinterpret_cast<const T*>(arena_.data() + b.offset);
      return std::all_of(values, values + b.bytes / sizeof(T),
                         [](T v) { return std::isfinite(static_cast<float>(v)); });
    });
  };
  if (!finite(plan.images)) return "the input images";
  for (int i = 0; i < plan.forward_ops; ++i) {
    const PlanOp& op = plan.ops[static_cast<size_t>(i)];
    if (last_->ops[static_cast<size_t>(i)].first->Run(context) != Outcome::kOk) return op.name;
    if (op.node >= 0 && !finite(plan.outputs[static_cast<size_t>(op.node)])) return op.name;
  }
  return "the loss";
}

void Instance::FillDead(size_t offset, size_t bytes) {
  std::fill_n(reinterpret_cast<uint32_t*>(arena_.data() + offset), (bytes + 3) / 4, kSignallingNan);
}

bool Instance::GuardIntact(size_t end) const {
  uint32_t found = 0;
  std::memcpy(&found, arena_.data() + (end + 3) / 4 * 4, sizeof found);
  return found == kSignallingNan;
}

}  // namespace parax
