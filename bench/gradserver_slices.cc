// How long the slices take that an instance runs between two ops: reduction and optimizer on one
// thread, all arrays together far larger than the caches. The design allows 200 us each.

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "parax/gradserver/kernels_internal.h"
#include "parax/gradserver/layout_internal.h"
#include "parax/gradserver/optimizer_internal.h"
#include "parax/gradserver/reduction_internal.h"
#include "parax/gradserver/server.h"

namespace parax {
namespace {

constexpr size_t kSide = 512;                 // a parameter is a matrix of so many rows and columns
constexpr size_t kFloats = size_t{48} << 20;  // of all arrays together

// The master as it is, or in 16 x 16 blocks that are transposed inside, as oneDNN packs weights.
IndexMap Form(bool transposed) {
  std::vector<uint32_t> position(kSide * kSide);
  for (uint32_t i = 0; i < position.size(); ++i) {
    const uint32_t row = i / kSide, column = i % kSide;
    const uint32_t block = row / 16 * (kSide / 16) + column / 16;
    position[i] = transposed ? block * 256 + column % 16 * 16 + row % 16 : i;
  }
  return CompressIndexMap(position, position.size());
}

ServerOptions Describe(OptimizerKind kind, UpdatePolicy policy, size_t leaves) {
  ServerOptions options;
  constexpr size_t kOtherArrays = 6;  // master, mean gradient, two states, two forms
  const size_t parameters = std::max<size_t>(1, kFloats / (leaves + kOtherArrays) / kSide / kSide);
  for (size_t p = 0; p < parameters; ++p) {
    options.parameters.push_back({"p", kSide * kSide, true, {Form(false), Form(true)}});
  }
  options.leaf_domain.assign(leaves, 0);
  options.domain_node = {-1};
  options.optimizer.kind = kind;
  options.policy = policy;
  return options;
}

// Of this thread on a core: a slice never sleeps, and what else runs there is not to count.
double Microseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

// An iteration is all slices of one update.
void Slices(benchmark::State& state, OptimizerKind kind, UpdatePolicy policy) {
  const int leaves = static_cast<int>(state.range(0));
  const ServerOptions options = Describe(kind, policy, static_cast<size_t>(leaves));
  const int parameters = static_cast<int>(options.parameters.size());
  size_t slices = 0;
  for (const ServerLayout::Task& task : ServerLayout(options).tasks) slices += task.slices;
  StopFlag stop;
  GradientServer server(options, stop);
  for (int p = 0; p < parameters; ++p) {
    std::fill_n(server.master(p).data(), kSide * kSide, 0.01f);
    for (int l = 0; l < leaves; ++l) std::fill_n(server.gradient(l, p), kSide * kSide, 0.001f);
  }
  server.RefreshForms();
  server.StartAt(0);

  std::vector<double> microseconds;
  uint64_t iteration = 0;
  for (auto _ : state) {
    ++iteration;
    bool ok = true;
    for (int l = 0; l < leaves; ++l) {
      ok = ok && server.BeginIteration(l, iteration, 1e-4, 1) == Outcome::kOk;
      for (int b = 0; b < server.buckets() && ok; ++b) {
        ok = server.AwaitBucket(l, b) == Outcome::kOk;
        server.Publish(l, b);
      }
      server.PublishMoments(l, 0);
    }
    const size_t before = microseconds.size();
    for (size_t s = 0; s < slices && ok; ++s) {
      const double start = Microseconds();
      ok = server.Help(0) == Outcome::kOk;
      microseconds.push_back(Microseconds() - start);
    }
    for (int l = 0; l < leaves && ok; ++l) {
      ok = server.EndIteration(l) == Outcome::kOk && server.Drain(l) == Outcome::kOk;
    }
    if (!ok) {
      state.SkipWithError(stop.Reason().c_str());
      return;
    }
    double total = 0;
    for (size_t i = before; i < microseconds.size(); ++i) total += microseconds[i];
    state.SetIterationTime(total * 1e-6);
  }
  std::sort(microseconds.begin(), microseconds.end());
  const auto at = [&](size_t percent) {
    return microseconds[(microseconds.size() - 1) * percent / 100];
  };
  state.counters["slices"] = static_cast<double>(slices);
  state.counters["median_us"] = at(50);
  state.counters["p99_us"] = at(99);
  state.counters["max_us"] = at(100);
}

constexpr size_t kSliceFloats = 16384;  // updated or summed at a time, as in a slice

// One optimizer's loop, a slice at a time through arrays that do not fit into caches.
void Update(benchmark::State& state, const OptimizerOptions& options) {
  const size_t states = StateNames(options).size(), arrays = 2 + states;
  const size_t n = kFloats / arrays / kSliceFloats * kSliceFloats;
  std::vector<float> w(n, 0.01f), g(n, 0.001f), s0(states > 0 ? n : 0), s1(states > 1 ? n : 0);
  const Kernels& kernels = KernelsAt(CurrentIsa());
  const Kernels::Update update = kernels.update(options);
  const Coefficients c = CoefficientsAt(options, 1, 1e-4, 1, true, 1);
  for (auto _ : state) {
    for (size_t at = 0; at < n; at += kSliceFloats) {
      update(w.data() + at, s0.empty() ? nullptr : s0.data() + at,
             s1.empty() ? nullptr : s1.data() + at, g.data() + at, kSliceFloats, c);
    }
    benchmark::ClobberMemory();
  }
  // All are read, and all but the gradient written.
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>((2 * arrays - 1) * n * sizeof(float)));
}

void Reduction(benchmark::State& state) {
  const auto leaves = static_cast<size_t>(state.range(0));
  const size_t n = kFloats / (leaves + 1) / kSliceFloats * kSliceFloats;
  std::vector<std::vector<float>> gradients(leaves, std::vector<float>(n, 0.001f));
  std::vector<const float*> from;
  std::vector<uint16_t> numbers;
  for (const auto& gradient : gradients) {
    numbers.push_back(static_cast<uint16_t>(from.size()));
    from.push_back(gradient.data());
  }
  std::vector<float> out(n), partial(kTreeDepth * kBlock);
  const Kernels& kernels = KernelsAt(CurrentIsa());
  const int group = ServerOptions{}.reduce_group;
  for (auto _ : state) {
    for (size_t at = 0; at < n; at += kSliceFloats) {
      SumLeaves(kernels, numbers, from.data(), group, at, kSliceFloats, 0.5f, out.data() + at,
                partial.data());
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>((leaves + 1) * n * sizeof(float)));
}

OptimizerOptions Optimizer(OptimizerKind kind, double momentum = 0.9, bool nesterov = false) {
  OptimizerOptions options;
  options.kind = kind;
  options.momentum = momentum;
  options.nesterov = nesterov;
  return options;
}

void Leaves(benchmark::internal::Benchmark* bench) {
  bench->ArgName("leaves")->Arg(1)->Arg(2)->Arg(8)->Arg(56)->UseManualTime()->Unit(
      benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(Slices, sgd_eager, OptimizerKind::kSgd, UpdatePolicy::kEager)->Apply(Leaves);
BENCHMARK_CAPTURE(Slices, sgd_commit, OptimizerKind::kSgd, UpdatePolicy::kCommit)->Apply(Leaves);
BENCHMARK_CAPTURE(Slices, adamw_commit, OptimizerKind::kAdamW, UpdatePolicy::kCommit)
    ->Apply(Leaves);
BENCHMARK_CAPTURE(Slices, lars_commit, OptimizerKind::kLars, UpdatePolicy::kCommit)->Apply(Leaves);
BENCHMARK_CAPTURE(Slices, adam_commit, OptimizerKind::kAdam, UpdatePolicy::kCommit)->Apply(Leaves);

BENCHMARK_CAPTURE(Update, sgd, Optimizer(OptimizerKind::kSgd, 0))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Update, sgd_momentum, Optimizer(OptimizerKind::kSgd))
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Update, sgd_nesterov, Optimizer(OptimizerKind::kSgd, 0.9, true))
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Update, adam, Optimizer(OptimizerKind::kAdam))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Update, adamw, Optimizer(OptimizerKind::kAdamW))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Update, lars, Optimizer(OptimizerKind::kLars))->Unit(benchmark::kMillisecond);
BENCHMARK(Reduction)->ArgName("leaves")->Arg(1)->Arg(2)->Arg(8)->Arg(56)->Unit(
    benchmark::kMillisecond);

}  // namespace
}  // namespace parax

BENCHMARK_MAIN();
