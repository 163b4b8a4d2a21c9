#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parax/engine/plan.h"
#include "parax/engine/tensors.h"
#include "parax/gradserver/server.h"
#include "parax/numa/arena.h"

namespace parax {

// The parameters and running statistics of one network as its plans' ops read them. Trainable ones
// live in the gradient server; frozen ones, and all of them when there is no server (inference), in
// memory of this store, one copy of the packed forms a domain.
class ParamStore {
 public:
  // `plans`: all plans that will run, of one graph, the training plan (if any) first.
  // `domain_nodes`: OS NUMA node of each domain (-1: none).
  ParamStore(std::vector<const Plan*> plans, std::vector<int> domain_nodes);

  // What the server is to hold for these plans; the rest of the options is the caller's.
  void DescribeTo(ServerOptions& options) const;
  // From now on trainable parameters and moving statistics are the server's.
  void Attach(GradientServer* server);

  // ---- Addresses for binding; stable. ----
  const void* Form(int domain, const Plan& plan, int form) const;
  const float* State(int state) const;
  int ServerParameter(int param) const { return server_param_[static_cast<size_t>(param)]; }
  int ServerMoment(int node) const { return server_moment_[static_cast<size_t>(node)]; }

  // ---- Drained state only ----
  // Takes parameters and running statistics by name; every one must be there (see StrictLoad).
  void Load(const TensorMap& tensors);
  TensorMap Export() const;
  TensorMap ExportEma() const;  // empty without EMA; running statistics are the current ones
  TensorMap ExportOptimizer(const OptimizerOptions& optimizer) const;
  void LoadOptimizer(const TensorMap& tensors, const OptimizerOptions& optimizer);
  void LoadEma(const TensorMap& tensors);

 private:
  struct Own {  // a parameter that the server does not hold
    std::vector<float> canonical;
    std::vector<std::vector<size_t>> offset;  // [domain][form]: bytes into own_[domain]
  };
  const Plan& plan() const { return *plans_[0]; }
  TensorMap ExportFrom(bool ema) const;
  std::span<float> MutableState(int state);

  std::vector<const Plan*> plans_;
  std::vector<int> domain_nodes_;
  std::vector<std::vector<Layout>> forms_;  // union over plans, a parameter
  std::vector<int> server_param_;           // -1: own
  std::vector<int> server_moment_;          // a node; -1: none
  std::vector<int> server_order_;           // server parameter -> plan parameter
  std::vector<int> moment_nodes_;           // server moment -> node
  std::vector<Own> own_params_;             // a parameter; empty for the server's
  std::vector<std::vector<float>> own_states_;
  std::vector<Arena> own_;  // a domain
  GradientServer* server_ = nullptr;
};

}  // namespace parax
