#pragma once

#include <memory>
#include <vector>

#include "parax/engine/workers.h"
#include "parax/layers/layer.h"
#include "parax/numa/arena.h"

namespace parax {

struct TimedOp {
  std::shared_ptr<const Kernel> kernel;
  struct Argument {
    size_t bytes = 0;
    bool zeroed = false;  // any content is no valid input, as where it holds indices
  };
  std::vector<Argument> arguments;  // in the order in which the kernel is bound
};

// The arguments of a layer's op. Throws Error for the loss layer, whose labels must be some.
std::vector<TimedOp::Argument> ArgumentsOf(const Layer& rule, const CompileRequest& request,
                                           const CompiledLayer& layer, const CompiledOp& op);

// Seconds a run, the median: with operands that come from memory, as in training, and with operands
// still in the caches from the run before; the same where they do not fit there.
struct OpTimes {
  double cold = 0, warm = 0;
};

// Times kernels with all seats busy: each runs the same one at the same time, on its own memory.
// Operands hold zeros or what earlier kernels made of them. Setup code.
class OpTimer {
 public:
  // `nodes`: OS NUMA node of each domain (-1: do not bind).
  OpTimer(Workers& workers, std::vector<int> nodes);

  // Times alternatives in turn, so that a disturbance meets them all; those that are clearly slower
  // than the best are run only once or twice.
  std::vector<OpTimes> Race(const std::vector<TimedOp>& ops);
  // Gives the operands' memory back until the next race.
  void Free() { arenas_ = std::vector<Arena>(arenas_.size()); }

 private:
  OpTimes Run(const TimedOp& op, bool warm);  // mean of all seats
  void Reserve(size_t bytes);                 // for one op's operands

  Workers& workers_;
  std::vector<int> nodes_;
  std::vector<Arena> arenas_;  // one a seat
  size_t evicting_;            // bytes of other memory used before the same bytes are used again
  size_t own_cache_;           // bytes of a seat's share of the caches
  size_t at_ = 0;              // where the next op's operands lie
  const std::vector<int64_t> samples_ = std::vector<int64_t>(size_t{1} << 16);  // ids, all 0
};

}  // namespace parax
