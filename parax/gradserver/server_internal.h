#pragma once

#include <span>
#include <vector>

#include "parax/gradserver/control_internal.h"
#include "parax/gradserver/forms_internal.h"
#include "parax/gradserver/kernels_internal.h"
#include "parax/gradserver/layout_internal.h"
#include "parax/gradserver/optimizer_internal.h"
#include "parax/gradserver/server.h"
#include "parax/numa/arena.h"

namespace parax {

// server.cc sets up, protocol.cc is what leaves call, tasks.cc decides who runs what and when,
// slices.cc does the arithmetic.
struct GradientServer::Impl {
  // A leaf as this process sees it; used by its own thread, but for the pointers.
  struct alignas(64) Leaf {
    uint64_t iteration = 0;
    uint64_t* slice_cycles = nullptr;  // CountSlices
    uint32_t owner = 0;
    int number = 0;
    Arena arena;                 // on the leaf's domain; everything below lies in it
    float* gradients = nullptr;  // layout.floats
    float* chunk = nullptr;      // scratch: kChunk
    float* partial = nullptr;    // scratch of SumLeaves
    float* moments = nullptr;    // [iteration % 2][layout.moment_floats]
    double* counts = nullptr;    // [iteration % 2][moment][micro]
  };
  struct Forms {
    Arena arena;                          // on the domain
    std::vector<std::vector<float*>> of;  // [parameter][form]
  };

  Impl(ServerOptions server_options, StopFlag& stop_flag);

  // ---- server.cc ----
  void AllocateValues();
  void AllocateForms();
  // Whether kernels read the master itself: the form is no more than a copy of it, and every
  // domain's leaves have it near. With an average, forms must be able to hold other values.
  bool MasterIsForm(const IndexMap& map, size_t elements) const {
    return options.domain_node.size() == 1 && emas == nullptr && IsIdentity(map, elements);
  }
  void AllocateLeaves();
  void StartAt(uint64_t iteration);
  void WriteForms(const float* values);
  float* MomentSlot(int leaf, int moment, int micro, bool variance);
  size_t CountIndex(uint64_t iteration, size_t moment, size_t micro) const {
    return (iteration % 2 * options.moments.size() + moment) * options.max_micro_batches + micro;
  }

  // ---- protocol.cc (hot) ----
  // Helps, then sleeps, until the sequence reaches n.
  Outcome Await(Leaf& leaf, const Sequence& sequence, uint64_t n, WaitName name, int bucket = -1);
  Outcome AwaitUpdate(Leaf& leaf, int bucket, uint64_t n);
  Outcome AwaitMoments(Leaf& leaf, uint64_t n);
  void NameMissingLeaf(int bucket, uint64_t n, WaitName& name) const;

  // ---- tasks.cc (hot) ----
  // Runs one ready slice of the leaf's domain if there is one, and a place at the gate.
  Outcome RunReady(Leaf& leaf, bool& ran);
  Outcome RunSome(Leaf& leaf, bool& ran);
  bool HasWork(uint32_t owner) const;
  bool Claim(int task, uint32_t owner, uint64_t& iteration, uint32_t& slice);
  Outcome Finish(int task, uint64_t iteration);
  void Open(int task, uint64_t iteration);
  void SetWork(int task);
  void RingAll();
  void OpenBucket(int bucket, uint64_t iteration);
  void OpenMoments(uint64_t iteration);
  Outcome Commit(uint64_t iteration);

  // ---- slices.cc (hot) ----
  void RunSlice(Leaf& leaf, const ServerLayout::Task& task, uint32_t slice, uint64_t iteration);
  void RunGradientSlice(Leaf& leaf, const ServerLayout::Task& task, uint32_t slice,
                        uint64_t iteration);
  void RunMomentSlice(const ServerLayout::MomentSlice& slice, uint64_t iteration);
  void UpdateChunk(const ServerLayout::Chunk& chunk, const float* gradient, const Coefficients& c,
                   uint64_t iteration);
  double Norm(const double* squares, int parameter) const;
  void SetLocalRates(int first_parameter, int last_parameter, double clip);

  const ServerOptions options;
  StopFlag& stop;
  const ServerLayout layout;
  const Kernels& kernels;
  const Kernels::Update update;
  const bool lars, commit;

  Arena control_arena, value_arena;
  Control control;
  float* masters = nullptr;
  float* emas = nullptr;  // null without EMA
  std::vector<float*> states;
  float* reduced = nullptr;  // null when fused
  std::vector<float*> running_mean, running_variance;
  std::vector<Forms> forms;  // a domain
  std::vector<Leaf> leaves;
  std::vector<const float*> gradients;  // of each leaf
  size_t form_floats = 0;               // of one domain
};

}  // namespace parax
