#pragma once

#include <map>
#include <string>

#include "parax/engine/plan.h"
#include "parax/sched/trace.h"

namespace parax {

// What a run resolved about its kernels: saved as plan.json in the run folder and every checkpoint.
// A later run with the same record, seed, data and instances computes the same bits.
struct PlanRecord {
  bool blocked = false;  // layers that `layers` does not name
  LayerLayouts layers;
  bool winograd = true;                          // as TrainerOptions had it
  int threads = 1;                               // an instance
  std::string machine;                           // MachineKey() of where it was resolved
  std::map<std::string, Implementations> plans;  // by "training:32", "evaluation:64"
  std::string layouts;                           // digest of all layouts (SHA-256, hexadecimal)

  void Take(const Plan& plan);
  void Set(Mode mode, int64_t batch, Implementations implementations);
  Implementations For(Mode mode, int64_t batch) const;  // empty when there is none
  std::string ToJson() const;
  static PlanRecord FromJson(const std::string& json, const std::string& where);  // throws Error
  std::string Hash() const;  // of kernels and layouts: twelve hexadecimal digits
};

// CPU model, instruction set in use and oneDNN version: what kernel names and layouts depend on.
std::string MachineKey();

// What a trace says of a plan.
TracePlan DescribeForTrace(const Plan& plan);

// A table of ops, buffers and predicted memory, for `parax plan`.
std::string Describe(const Plan& plan, bool verbose);

}  // namespace parax
