#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "parax/base/isa.h"
#include "parax/layers/elementwise.h"
#include "parax/layers/library.h"
#include "parax/layers/reorder.h"
#include "tests/layers/harness.h"

// Layers whose activations and packed weights are bf16, against float32 on the same numbers.
namespace parax::testing {
namespace {

constexpr bool kNative = false, kEmulated = true;

std::vector<bool> WaysHere() {
  return HasBf16() ? std::vector<bool>{kNative, kEmulated} : std::vector<bool>{kEmulated};
}

CompileRequest ToBf16(CompileRequest request, bool emulate) {
  for (Layout& input : request.inputs) input = input.WithType(DType::kBF16);
  request.emulate = emulate;
  return request;
}

// What a bf16 run and its float32 twin are fed: numbers that bf16 holds. Biases and norms'
// parameters are float32 in both.
void Feed(LayerRun& run) {
  for (Values& input : run.inputs) input = Rounded(input);
  if (run.layer().kind() == "conv" || run.layer().kind() == "linear")
    run.params[0] = Rounded(run.params[0]);
  run.output_grad = Rounded(run.output_grad);
}

// |found - expected| <= 2^-8 |expected| + 2^-12 of the largest: half a unit of bf16, and room for
// another order of summation that rounds the other way.
void ExpectRounded(const Values& found, const Values& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  float largest = 0;
  for (const float v : expected) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_LE(std::abs(found[i] - expected[i]), std::abs(expected[i]) / 256 + largest / 4096)
        << what << " at " << i << ": " << found[i] << ", float32 " << expected[i];
  }
}

struct Subject {
  LayerPtr layer;
  std::vector<Dims> inputs;
};

// Own layers compute in float32: their results are float32's, rounded.
TEST(Bf16, OwnLayersRoundWhatFloat32Gives) {
  const Dims dims = {3, 37, 7, 5}, wide = {2, 64, 14, 14};
  const Subject subjects[] = {
      {Relu(), {dims}},
      {Add(false), {dims, dims}},
      {Add(true), {dims, dims}},
      {BatchNorm({.channels = 37}), {dims}},
      {BatchNorm({.channels = 37, .relu = true}), {dims}},
      {BatchNorm({.channels = 64, .add = true, .relu = true}), {wide, wide}},
      {BatchNorm({.channels = 64, .frozen = true}), {wide}},
      {MaxPool({.kernel = 3, .stride = 2, .padding = 1}), {wide}},
      {MaxPool({.kernel = 2, .stride = 2}), {dims}},
      {AvgPool({.kernel = 3, .stride = 2, .padding = 1}), {wide}},
      {GlobalAvgPool(), {dims}},
      {GlobalAvgPool(), {wide}},
      {ChannelPad(50, 6, 2), {dims}},
      {Dropout(0.3, 5), {dims}},
      {Flatten(), {dims}},
  };
  for (const Subject& subject : subjects) {
    for (const Mode mode : {Mode::kTraining, Mode::kEvaluation}) {
      for (const int threads : {1, 3}) {
        const CompileRequest request = Request(subject.inputs, mode, false, threads);
        LayerRun wide_run(subject.layer, request), run(subject.layer, ToBf16(request, kNative));
        Feed(wide_run);
        Feed(run);
        const std::string what = subject.layer->kind() + ", " + std::to_string(threads);
        ASSERT_EQ(run.compiled().output.dtype(), DType::kBF16) << what;
        ASSERT_EQ(wide_run.Forward(), Outcome::kOk);
        ASSERT_EQ(run.Forward(), Outcome::kOk);
        ExpectSameBits(run.output(), Rounded(wide_run.output()), what);
        if (mode == Mode::kEvaluation) continue;
        ASSERT_EQ(wide_run.Backward(), Outcome::kOk);
        ASSERT_EQ(run.Backward(), Outcome::kOk);
        for (int i = 0; i < static_cast<int>(subject.inputs.size()); ++i)
          ExpectSameBits(run.input_grad(i), Rounded(wide_run.input_grad(i)), what + " gradient");
        for (int p = 0; p < static_cast<int>(run.compiled().grads.size()); ++p)
          ExpectSameBits(run.param_grad(p), wide_run.param_grad(p), what + " parameter gradient");
      }
    }
  }
}

TEST(Bf16, NormGivesTheSameBitsAtAllLevels) {
  const Dims dims = {3, 96, 6, 7};
  Values output, gradient;
  for (const Isa level : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (level > CurrentIsa()) continue;
    const IsaLimit limit(level);
    LayerRun run(BatchNorm({.channels = 96, .relu = true}), ToBf16(Request({dims}), kNative));
    Feed(run);
    ASSERT_EQ(run.Forward(), Outcome::kOk);
    ASSERT_EQ(run.Backward(), Outcome::kOk);
    if (output.empty()) output = run.output(), gradient = run.input_grad(0);
    ExpectSameBits(run.output(), output, std::string(Name(level)));
    ExpectSameBits(run.input_grad(0), gradient, std::string(Name(level)));
  }
}

// A norm that changes nothing stores what it loads: the vectors' rounding, with ties, overflow and
// NaN, is BFloat16's.
TEST(Bf16, VectorsRoundToNearestEven) {
  std::vector<float> values = {1.0f + 0x1p-8f,  1.0f + 3 * 0x1p-8f,
                               -1.0f - 0x1p-8f, std::numeric_limits<float>::max(),
                               65535.0f,        0.1f};
  values.resize(64, 0.3f);
  for (const Isa level : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (level > CurrentIsa()) continue;
    const IsaLimit limit(level);
    LayerRun run(BatchNorm({.channels = 64}),
                 ToBf16(Request({{1, 64, 1, 1}}, Mode::kEvaluation), kNative));
    run.inputs[0].assign(64, 0.0f);
    run.inputs[0][7] = NAN;
    run.params[0].assign(64, 1.0f);
    run.params[1] = values;  // the bias is float32
    ASSERT_EQ(run.Forward(), Outcome::kOk);
    const Values found = run.output();
    EXPECT_TRUE(std::isnan(found[7])) << Name(level);
    for (size_t i = 0; i < 64; ++i) {
      if (i == 7) continue;
      EXPECT_EQ(found[i], static_cast<float>(BFloat16(values[i]))) << i << Name(level);
    }
  }
  EXPECT_EQ(static_cast<float>(BFloat16(values[0])), 1.0f);  // ties to even
  EXPECT_EQ(static_cast<float>(BFloat16(values[1])), 1.0f + 0x1p-6f);
  EXPECT_TRUE(std::isinf(static_cast<float>(BFloat16(values[3]))));
}

void CheckWeighted(const LayerPtr& layer, const CompileRequest& request, const LayerRun& expected,
                   const std::string& what) {
  LayerRun run(layer, request);
  Feed(run);
  ASSERT_EQ(run.Forward(), Outcome::kOk) << what;
  ExpectRounded(run.output(), expected.output(), what);
  if (request.mode == Mode::kEvaluation) return;
  ASSERT_EQ(run.Backward(), Outcome::kOk) << what;
  ExpectRounded(run.input_grad(0), expected.input_grad(0), what + ", input gradient");
  for (int p = 0; p < static_cast<int>(run.params.size()); ++p) {
    ASSERT_EQ(run.compiled().grads[static_cast<size_t>(p)].dtype(), DType::kF32) << what;
    ExpectNear(run.param_grad(p), expected.param_grad(p), 2e-5,
               fmt::format("{}, gradient of parameter {}", what, p));
  }
}

// Every candidate of every pass, forced, against float32.
TEST(Bf16, EveryKernelOfConvolutionAndLinear) {
  const Subject subjects[] = {
      {Conv({.in_channels = 16, .out_channels = 32, .kernel = 3, .padding = 1}), {{2, 16, 9, 11}}},
      {Conv({.in_channels = 3, .out_channels = 20, .kernel = 7, .stride = 2, .padding = 3}),
       {{2, 3, 17, 19}}},
      {Conv({.in_channels = 64, .out_channels = 48, .kernel = 1}), {{3, 64, 7, 7}}},
      {Conv({.in_channels = 32, .out_channels = 64, .kernel = 1, .stride = 2}), {{2, 32, 8, 8}}},
      {Conv({.in_channels = 32, .out_channels = 64, .kernel = 3, .padding = 1, .groups = 4}),
       {{2, 32, 6, 6}}},
      {Conv({.in_channels = 16, .out_channels = 24, .kernel = 3, .padding = 1, .bias = true}),
       {{2, 16, 5, 6}}},
      {Linear(64, 10), {{16, 64}}},
      {Linear(17, 33, false), {{5, 17}}},
  };
  size_t kernels = 0;
  for (const Subject& subject : subjects) {
    const CompileRequest wide = Request(subject.inputs);
    LayerRun expected(subject.layer, wide);
    Feed(expected);
    ASSERT_EQ(expected.Forward(), Outcome::kOk);
    ASSERT_EQ(expected.Backward(), Outcome::kOk);
    for (const bool emulate : WaysHere()) {
      for (const bool blocked : {false, true}) {
        for (const int threads : {1, 2}) {
          CompileRequest request = ToBf16(wide, emulate);
          request.blocked = blocked;
          request.threads = threads;
          for (const int op : {0, 1, 2}) {
            for (const std::string& name : subject.layer->Candidates(request, op)) {
              request.implementations.assign(3, "");
              request.implementations[static_cast<size_t>(op)] = name;
              ++kernels;
              CheckWeighted(subject.layer, request, expected,
                            fmt::format("{} of {}{}, {} threads", name, subject.layer->Signature(),
                                        blocked ? " blocked" : "", threads));
              request.implementations.clear();
            }
          }
        }
      }
    }
  }
  EXPECT_GE(kernels, 100u);
}

// A convolution that does the norm behind it rounds once, at its end.
TEST(Bf16, ConvolutionWithNorm) {
  const Dims in = {2, 32, 8, 8}, out = {2, 64, 8, 8};
  for (const bool add : {false, true}) {
    const LayerPtr both = Conv({.in_channels = 32, .out_channels = 64, .kernel = 3, .padding = 1})
                              ->WithNorm({.channels = 64, .add = add, .relu = true});
    const auto dims = add ? std::vector<Dims>{in, out} : std::vector<Dims>{in};
    const CompileRequest wide = Request(dims, Mode::kEvaluation);
    LayerRun expected(both, wide);
    const auto prepare = [](LayerRun& run) {
      Feed(run);
      run.states = {RandomValues(64, 7, -1, 1), RandomValues(64, 8, 0.5, 2)};
    };
    prepare(expected);
    ASSERT_EQ(expected.Forward(), Outcome::kOk);
    for (const bool emulate : WaysHere()) {
      for (const bool blocked : {false, true}) {
        CompileRequest request = ToBf16(wide, emulate);
        request.blocked = blocked;
        for (const std::string& name : both->Candidates(request, 1)) {
          request.implementations = {"", name};
          LayerRun run(both, request);
          prepare(run);
          ASSERT_EQ(run.Forward(), Outcome::kOk) << name;
          ExpectRounded(run.output(), expected.output(), name);
        }
      }
    }
  }
}

// Case B: tails and padding lanes hold no other row's numbers.
TEST(Bf16, ProductsOfOnesAreExactBesideRowsOfNan) {
  for (const bool emulate : WaysHere()) {
    for (const int64_t depth : {33, 47, 64, 65, 100, 129}) {
      const LayerPtr layer = Linear(depth, 64, false);
      CompileRequest request = ToBf16(Request({{16, depth}}, Mode::kEvaluation), emulate);
      for (const std::string& name : layer->Candidates(request, 0)) {
        request.implementations = {name};
        LayerRun run(layer, request);
        std::fill(run.inputs[0].begin(), run.inputs[0].end(), NAN);
        std::fill_n(run.inputs[0].begin(), depth, 1.0f);
        run.params[0].assign(run.params[0].size(), 1.0f);
        ASSERT_EQ(run.Forward(), Outcome::kOk);
        const Values y = run.output();
        for (size_t i = 0; i < 64; ++i)
          ASSERT_EQ(y[i], static_cast<float>(depth)) << name << ", depth " << depth;
        for (size_t i = 64; i < y.size(); ++i) ASSERT_TRUE(std::isnan(y[i])) << name;
      }
    }
  }
}

TEST(Bf16, ReordersRoundAndWiden) {
  const Dims dims = {2, 19, 5, 3};
  const Values values = RandomValues(2 * 19 * 5 * 3, 1);
  const Layout wide = Layout::ChannelsLast(dims), narrow = Layout::ChannelsLast(dims, DType::kBF16);
  const auto copy = [](const Layout& from, const Layout& to, const std::vector<std::byte>& bytes) {
    const auto kernel = MakeReorder(from, to);
    std::vector<std::byte> source = bytes, target(to.bytes()),
                           scratch(kernel->scratch_bytes() + 64);
    std::vector<void*> arguments = {source.data(), target.data()};
    if (kernel->scratch_bytes() > 0) arguments.push_back(scratch.data());
    EXPECT_EQ(kernel->Bind(arguments)->Run({}), Outcome::kOk);
    return target;
  };
  const auto rounded = copy(wide, narrow, PackBytes(wide, values));
  ExpectSameBits(Unpack(narrow, rounded.data()), Rounded(values), "rounded");
  const auto widened = copy(narrow, wide, rounded);
  ExpectSameBits(Unpack(wide, widened.data()), Rounded(values), "widened");
  const Layout plain = Layout::Plain(dims, DType::kBF16);
  ExpectSameBits(Unpack(plain, copy(narrow, plain, rounded).data()), Rounded(values), "reordered");
}

}  // namespace
}  // namespace parax::testing
