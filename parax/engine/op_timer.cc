#include "parax/engine/op_timer.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>

#include "parax/base/error.h"

namespace parax {
namespace {

constexpr size_t kMostEvicting = size_t{64} << 20;
constexpr size_t kAlignment = 64;
constexpr size_t kMostRounds = 3;
constexpr size_t kLeastRounds = 2;       // of alternatives that come near
constexpr double kClearlySlower = 1.15;  // times the best
constexpr double kEnoughSeconds = 0.03;  // of one alternative
constexpr double kShort = 2e-3;          // first runs of shorter ones are not counted
constexpr double kGrowth = 1.5;          // of the operands' memory: taking it costs more than runs

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

size_t BytesOf(const TimedOp& op) {
  size_t bytes = 0;
  for (const TimedOp::Argument& argument : op.arguments) bytes += RoundUp(argument.bytes);
  return bytes;
}

// Bytes behind an argument of a layer's op.
size_t ArgumentBytes(const Layer& rule, const CompileRequest& request, const CompiledLayer& layer,
                     const Kernel& kernel, const Argument& argument) {
  const size_t i = static_cast<size_t>(argument.index);
  switch (argument.role) {
    case Role::kInput:
    case Role::kInputGrad:
      return layer.inputs.empty() ? request.inputs[i].bytes() : layer.inputs[i].bytes();
    case Role::kOutput:
    case Role::kOutputGrad:
      return layer.output.bytes();
    case Role::kParamForm:
      return layer.forms[i].layout.bytes();
    case Role::kParamGrad:
      return layer.grads[i].bytes();
    case Role::kState:
      return static_cast<size_t>(Product(rule.States()[i].dims)) * sizeof(float);
    case Role::kSaved:
      return layer.saved[i];
    case Role::kTemp:
      return layer.temps[i];
    case Role::kScratch:
      return kernel.scratch_bytes();
    case Role::kLabels:
    case Role::kTargets:
    case Role::kLoss:
      break;
  }
  Fail("layer {} cannot be timed by itself", rule.kind());
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

std::vector<TimedOp::Argument> ArgumentsOf(const Layer& rule, const CompileRequest& request,
                                           const CompiledLayer& layer, const CompiledOp& op) {
  std::vector<TimedOp::Argument> arguments;
  for (const Argument& argument : op.arguments) {
    arguments.push_back(
        {ArgumentBytes(rule, request, layer, *op.kernel, argument), argument.role == Role::kSaved});
  }
  return arguments;
}

OpTimer::OpTimer(Workers& workers, std::vector<int> nodes)
    : workers_(workers), nodes_(std::move(nodes)), arenas_(static_cast<size_t>(workers.size())) {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);  // of the whole socket
  evicting_ = cache > 0 ? std::min(kMostEvicting, static_cast<size_t>(cache)) : kMostEvicting;
  own_cache_ = std::max(static_cast<size_t>(std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE))),
                        evicting_ / arenas_.size());
}

void OpTimer::Reserve(size_t bytes) {
  const size_t has = arenas_[0].size();
  if (has >= bytes + evicting_) return;
  const size_t wanted =
      std::max(bytes + evicting_, static_cast<size_t>(kGrowth * static_cast<double>(has)));
  at_ = 0;
  workers_.Run([&](int leaf) {
    const int node = nodes_[static_cast<size_t>(workers_.seat(leaf).domain)];
    Arena& arena = arenas_[static_cast<size_t>(leaf)];
    arena = Arena();
    arena = Arena(wanted, ArenaOptions{node, false});
  });
}

OpTimes OpTimer::Run(const TimedOp& op, bool warm) {
  const size_t bytes = BytesOf(op);
  Reserve(bytes);
  if (at_ + bytes > arenas_[0].size()) at_ = 0;
  std::vector<OpTimes> seconds(arenas_.size());
  std::atomic<int> waiting{workers_.size()};
  workers_.Run([&](int leaf) {
    std::unique_ptr<BoundKernel> bound;
    {
      struct Arrived {  // on the way out of an exception too: the others wait
        std::atomic<int>& waiting;
        ~Arrived() { --waiting; }
      } const arrived{waiting};
      std::byte* address = arenas_[static_cast<size_t>(leaf)].data() + at_;
      std::vector<void*> arguments;
      for (const TimedOp::Argument& argument : op.arguments) {
        if (argument.zeroed) std::memset(address, 0, argument.bytes);
        arguments.push_back(address);
        address += RoundUp(argument.bytes);
      }
      bound = op.kernel->Bind(arguments);
    }
    while (waiting.load() > 0) std::this_thread::yield();
    const RunContext context{0, 1, samples_.data()};
    for (double* const result :
         {&seconds[static_cast<size_t>(leaf)].cold, &seconds[static_cast<size_t>(leaf)].warm}) {
      const Clock::time_point start = Clock::now();
      const Outcome outcome = bound->Run(context);
      *result = std::chrono::duration<double>(Clock::now() - start).count();
      if (outcome != Outcome::kOk)
        Fail("{} failed while it was timed", op.kernel->implementation());
      if (!warm) break;
    }
  });
  at_ += bytes;
  OpTimes mean;
  for (const OpTimes& one : seconds) {
    mean.cold += one.cold / static_cast<double>(seconds.size());
    mean.warm += one.warm / static_cast<double>(seconds.size());
  }
  return mean;
}

std::vector<OpTimes> OpTimer::Race(const std::vector<TimedOp>& ops) {
  std::vector<std::vector<double>> cold(ops.size());
  std::vector<OpTimes> times(ops.size());
  double best = INFINITY;
  const auto near = [&](const OpTimes& one) { return one.cold <= kClearlySlower * best; };
  for (size_t round = 0; round < kMostRounds; ++round) {
    const bool alone = std::ranges::count_if(times, near) < 2;
    for (size_t i = 0; round == 0 && i < ops.size(); ++i) {
      const bool fits = BytesOf(ops[i]) <= own_cache_;
      OpTimes one = Run(ops[i], fits);
      times[i].warm = fits ? one.warm : one.cold;
      if (one.cold < kShort) one = Run(ops[i], false);
      cold[i].push_back(one.cold);
    }
    for (size_t i = 0; round > 0 && i < ops.size(); ++i) {
      const bool enough = (alone || round >= kLeastRounds) &&
                          std::reduce(cold[i].begin(), cold[i].end()) > kEnoughSeconds;
      if (near(times[i]) && !enough) cold[i].push_back(Run(ops[i], false).cold);
    }
    for (size_t i = 0; i < ops.size(); ++i) times[i].cold = Median(cold[i]);
    best = std::ranges::min_element(times, {}, &OpTimes::cold)->cold;
  }
  return times;
}

}  // namespace parax
