#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parax/engine/graph.h"

namespace parax {

// One trainable tensor of a network, in graph order; all plans of a graph number them alike.
struct PlanParam {
  std::string name;  // "layer1.0.conv1.weight"
  int node = 0;
  int index = 0;  // within the layer
  ParamSpec spec;
  bool trainable = true;
  Layout grad;  // layout of gradient, master and optimizer states
};

// A running statistic, in graph order.
struct PlanState {
  std::string name;
  int node = 0;
  int index = 0;
  StateSpec spec;
  bool moving = true;  // training updates it (it belongs to a batch norm that is not frozen)
};

// A packed copy of a parameter that some op reads.
struct PlanForm {
  int param = 0;
  Layout layout;
};

enum class BufferKind : uint8_t { kInput, kActivation, kSaved, kGradient, kScratch };

struct PlanBuffer {
  std::string name;
  BufferKind kind = BufferKind::kActivation;
  size_t bytes = 0;
  int first = -1;     // op that writes it first
  int last = -1;      // op that uses it last
  int shares = -1;    // lies in this earlier buffer's memory (view or in place)
  size_t offset = 0;  // in the arena
};

enum class Place : uint8_t { kArena, kForm, kGradient, kState };

struct PlanArgument {
  Place place = Place::kArena;
  int index = 0;  // into Plan::buffers, forms, params or states
  bool write = false;
};

struct PlanOp {
  std::string name;   // "layer1.0.conv1 forward"
  std::string layer;  // its layer's kind, "conv"; "reorder", "gradient sum" or "loss"
  int node = -1;      // -1: a reorder, accumulation or the loss
  OpKind kind = OpKind::kForward;
  std::shared_ptr<const Kernel> kernel;
  std::vector<PlanArgument> arguments;
  double flops = 0;
  double bytes = 0;
  int in_place_from = -1, in_place_to = -1;
  // The op before which this one must have run; -1: the next. Its arguments live until then.
  int latest = -1;
};

// Batch statistics that a training-mode norm leaves behind.
struct PlanMoment {
  int node = 0;
  int mean = 0, variance = 0;  // buffers
  int64_t channels = 0;
  double count = 0;
};

// By layer ("layer1.0.conv1"; "relu#7" where it has no name): its ops' implementations, forward
// then backward. With the layouts they fix everything that affects results.
using Implementations = std::map<std::string, std::vector<std::string>>;

// By layer, likewise: whether it lets oneDNN choose blocked layouts or works channels last.
using LayerLayouts = std::map<std::string, bool>;

struct PlanOptions {
  Mode mode = Mode::kTraining;
  int64_t batch = 1;     // images the plan takes through at once
  bool blocked = false;  // layers that `layouts` does not name
  LayerLayouts layouts;
  bool winograd = true;
  int threads = 1;
  LossOptions loss;
  // As an earlier run resolved them (Plan::implementations); what is absent is chosen freely.
  Implementations implementations;
  // Weight gradients may run later than their place in the list, as far as the arena grows by no
  // more than this part of it.
  double defer_memory = 0;
  // Put canaries between buffers (debugging).
  bool guards = false;
};

// The static list of ops of one network at one batch size, with every buffer's place in the arena.
// Immutable once built; shared by all instances.
class Plan {
 public:
  // Setup code; call on a thread with `options.threads` OpenMP threads. `like`: a plan of the same
  // graph whose gradient layouts and packed forms must be kept (null: free choice).
  static Plan Build(const Graph& graph, const PlanOptions& options, const Plan* like = nullptr);

  PlanOptions options;
  std::vector<PlanParam> params;
  std::vector<PlanState> states;
  std::vector<PlanForm> forms;
  std::vector<PlanBuffer> buffers;
  std::vector<PlanOp> ops;
  std::vector<PlanMoment> moments;
  int forward_ops = 0;  // ops[0, forward_ops) are forward and loss, the rest backward
  int images = -1, labels = -1, targets = -1, loss = -1, logits = -1,
      probabilities = -1;    // buffers
  std::vector<int> outputs;  // buffer that node i's output lies in
  Layout images_layout, logits_layout;
  size_t arena_bytes = 0;

  Implementations implementations;

  size_t BytesAtPeak(BufferKind kind) const;  // of the op with most live bytes
  double flops() const;

  static constexpr size_t kGuardBytes = 64;
  static constexpr size_t kAlignment = 64;
};

// The buffer whose memory buffer `b` lies in.
int Root(const std::vector<PlanBuffer>& buffers, int b);

// Fills in first, last, shares and offset of the plan's buffers and arena_bytes: lifetimes from the
// ops' arguments, in-place where an op allows it and its operand dies there, offsets greedily by
// size. Buffers in `pinned` live from the first op to the last.
void PlanMemory(Plan& plan, const std::vector<int>& pinned);
// The same, and gives weight gradients their latest places (PlanOptions::defer_memory).
void PlanMemoryWithDeferral(Plan& plan, const std::vector<int>& pinned);

}  // namespace parax
