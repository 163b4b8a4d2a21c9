#include "parax/base/isa.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <dnnl.hpp>
#include <string>

#include "tests/layers/harness.h"

namespace parax::testing {
namespace {

std::vector<Isa> LevelsHere() {
  std::vector<Isa> levels;
  for (const Isa level : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (level <= CurrentIsa()) levels.push_back(level);
  }
  return levels;
}

// Output and input gradient of `layer` at every level this machine has.
void ExpectSameAtAllLevels(const LayerPtr& layer, const std::vector<Dims>& inputs) {
  Values output, gradient;
  for (const Isa level : LevelsHere()) {
    const IsaLimit limit(level);
    ASSERT_EQ(CurrentIsa(), level);
    LayerRun run(layer, Request(inputs));
    ASSERT_EQ(run.Forward(), Outcome::kOk);
    ASSERT_EQ(run.Backward(), Outcome::kOk);
    if (level == Isa::kBaseline) {
      output = run.output();
      gradient = run.input_grad(0);
    }
    ExpectSameBits(run.output(), output, layer->kind() + " output, " + std::string(Name(level)));
    ExpectSameBits(run.input_grad(0), gradient,
                   layer->kind() + " gradient, " + std::string(Name(level)));
  }
}

TEST(Isa, LayersGiveTheSameBitsAtAllLevels) {
  const Dims dims = {3, 37, 5, 7};
  ExpectSameAtAllLevels(Relu(), {dims});
  ExpectSameAtAllLevels(Add(true), {dims, dims});
  ExpectSameAtAllLevels(ChannelPad(50, 6, 2), {dims});
  ExpectSameAtAllLevels(Dropout(0.3, 5), {dims});
  ExpectSameAtAllLevels(SoftmaxCrossEntropy({.classes = 37}), {{3, 37}});
}

TEST(Isa, WinogradGivesTheSameBitsAtAllLevelsOnAnyNumberOfThreads) {
  for (const Dims& dims : {Dims{6, 32, 13, 14}, Dims{1, 32, 5, 6}}) {
    Values output, gradient, weight_gradient;
    for (const Isa level : LevelsHere()) {
      if (level == Isa::kBaseline) continue;
      const IsaLimit limit(level);
      for (const int threads : {1, 2, 3}) {
        CompileRequest request = Request({dims}, Mode::kTraining, false, threads);
        request.implementations.assign(3, "parax:winograd");
        LayerRun run(Conv({.in_channels = 32, .out_channels = 48, .kernel = 3, .padding = 1}),
                     request);
        ASSERT_EQ(run.Forward(), Outcome::kOk);
        ASSERT_EQ(run.Backward(), Outcome::kOk);
        if (output.empty()) {
          output = run.output();
          gradient = run.input_grad(0);
          weight_gradient = run.param_grad(0);
        }
        const std::string what = fmt::format("{}, {} threads", Name(level), threads);
        ExpectSameBits(run.output(), output, "output, " + what);
        ExpectSameBits(run.input_grad(0), gradient, "input gradient, " + what);
        ExpectSameBits(run.param_grad(0), weight_gradient, "weight gradient, " + what);
      }
    }
  }
}

// A loop with a product and a sum: fused multiply-add would change its bits.
TEST(Isa, NoContraction) {
  const Values a = RandomValues(1000, 1), b = RandomValues(1000, 2), c = RandomValues(1000, 3);
  Values first;
  for (const Isa level : LevelsHere()) {
    Values y(a.size());
    RunAtIsa(level, [pa = a.data(), pb = b.data(), pc = c.data(), py = y.data()]() PARAX_INLINE {
      for (size_t i = 0; i < 1000; ++i) py[i] = pa[i] * pb[i] + pc[i];
    });
    if (first.empty()) first = y;
    ExpectSameBits(y, first, std::string(Name(level)));
  }
}

Isa IsaOfOnednn() {
  const auto effective = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto has = [&](dnnl::cpu_isa isa) {  // bit sets, each level containing those below it
    return (effective & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
  };
  if (has(dnnl::cpu_isa::avx512_core)) return Isa::kAvx512;
  return has(dnnl::cpu_isa::avx2) ? Isa::kAvx2 : Isa::kBaseline;
}

// Child processes, because the variable is read once: before anything here may ask for the level.
// Each exits with the level it finds.
TEST(IsaDeathTest, ObeysOnednnsVariableAsOnednnDoes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto level_under = [](const char* value, const char* older = nullptr) {
    if (value != nullptr) setenv("ONEDNN_MAX_CPU_ISA", value, 1);
    if (older != nullptr) setenv("DNNL_MAX_CPU_ISA", older, 1);
    std::exit(CurrentIsa() == IsaOfOnednn() ? static_cast<int>(CurrentIsa()) : 9);
  };
  const int avx2 = __builtin_cpu_supports("avx2") ? 1 : 0;
  const int avx512 = __builtin_cpu_supports("avx512dq") ? 2 : avx2;
  for (const auto& [value, level] :
       std::initializer_list<std::pair<const char*, int>>{{"SSE41", 0},
                                                          {"avx", 0},
                                                          {"AVX2", avx2},
                                                          {"avx2_vnni", avx2},
                                                          {"AVX512_CORE", avx512},
                                                          {"ALL", avx512},
                                                          {"unheard-of", avx512}}) {
    EXPECT_EXIT(level_under(value), ::testing::ExitedWithCode(level), "") << value;
  }
  EXPECT_EXIT(level_under(nullptr, "SSE41"), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(level_under("AVX2", "SSE41"), ::testing::ExitedWithCode(avx2), "");
}

}  // namespace
}  // namespace parax::testing
