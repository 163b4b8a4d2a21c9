#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parax/sched/trace.h"

namespace parax {

// What one instance can reach while all others are busy too.
struct Peaks {
  double flops = 0;      // single-precision operations a second, operands in registers
  double bandwidth = 0;  // bytes a second that a copy reads and writes
};

// Ops of one layer kind and pass, or one op; sums over all instances and runs.
struct ProfileRow {
  std::string name;              // "conv forward"; of an op its layer and pass
  std::string kind{};            // of an op: "conv backward weights"
  std::string implementation{};  // of an op
  uint64_t runs = 0;
  double seconds = 0, flops = 0;
  double bytes = 0;  // least traffic
  double least = 0;  // seconds that the peaks allow, op by op: the larger of both bounds
  double excess() const { return seconds > least ? seconds - least : 0; }
};

// Where the time of training or evaluation went: seconds, summed over instances. The parts add up
// to `whole`.
struct Profile {
  bool training = false;
  size_t instances = 0;
  int64_t images = 0;
  double whole = 0;
  double lost = 0;         // in any part: the cores ran other programs
  double compute = 0;      // in ops
  double reduction = 0;    // in the gradient server's slices: reduction and optimizer
  double server_wait = 0;  // for other instances' gradients and for updates
  double input_wait = 0;
  double gate_wait = 0;  // for a place at the bandwidth gate, or for a staggered start
  double other = 0;      // copies of the input, and what lies between iterations
  double flops = 0;
  Peaks peaks;
  std::vector<ProfileRow> kinds{};  // most time first
  std::vector<ProfileRow> ops{};    // most excess first

  double images_per_s() const { return Rate(whole); }
  double kernel_images_per_s() const { return Rate(compute); }  // with nothing but the ops
  double efficiency() const { return whole > 0 ? compute / whole : 0; }
  double flop_share() const { return whole > 0 ? flops / whole / peaks.flops : 0; }  // of the peak

 private:
  double Rate(double seconds) const {
    return seconds > 0 ? static_cast<double>(images) * static_cast<double>(instances) / seconds : 0;
  }
};

// Of all that the tracks have summed. Setup code; the writers must be at rest.
Profile Summarise(const Trace& trace, bool training, const Peaks& peaks);

}  // namespace parax
