#include <gtest/gtest.h>

#include <algorithm>

#include "parax/base/error.h"
#include "parax/base/isa.h"
#include "tests/layers/reference.h"

// Convolutions that do the batch norm behind them, as evaluation runs them.
namespace parax::testing {
namespace {

struct Case {
  ConvOptions conv;
  Dims in;
};

const Case kCases[] = {
    {{.in_channels = 16, .out_channels = 32, .kernel = 3, .padding = 1}, {2, 16, 13, 14}},
    {{.in_channels = 32, .out_channels = 128, .kernel = 1}, {3, 32, 7, 7}},   // packed weights
    {{.in_channels = 528, .out_channels = 80, .kernel = 1}, {1, 528, 3, 3}},  // two depths
    {{.in_channels = 32, .out_channels = 192, .kernel = 3, .stride = 2, .padding = 1},
     {1, 32, 9, 10}},
    {{.in_channels = 3, .out_channels = 20, .kernel = 7, .stride = 2, .padding = 3, .bias = true},
     {2, 3, 19, 17}},
    {{.in_channels = 32, .out_channels = 64, .kernel = 3, .padding = 1, .groups = 4},
     {2, 32, 6, 6}},
};

BatchNormOptions Norm(int64_t channels, bool add, bool relu) {
  return {.channels = channels, .epsilon = 1e-3, .add = add, .relu = relu};
}

bool IsOwn(const std::string& implementation) { return implementation.starts_with("parax:"); }

// What the two layers compute one after the other, on the values of `both`.
Values Separately(const Case& c, const BatchNormOptions& norm, const LayerRun& both,
                  const std::string& implementation) {
  CompileRequest request = Request({c.in}, Mode::kEvaluation);
  if (IsOwn(implementation)) request.implementations = {implementation};
  LayerRun conv(Conv(c.conv), request);
  const size_t own = conv.params.size();
  conv.inputs[0] = both.inputs[0];
  std::copy_n(both.params.begin(), own, conv.params.begin());
  EXPECT_EQ(conv.Forward(), Outcome::kOk);
  const Dims out = conv.layer().OutputDims({c.in});
  LayerRun alone(BatchNorm(norm),
                 Request(std::vector<Dims>(norm.add ? 2 : 1, out), Mode::kEvaluation));
  alone.inputs[0] = conv.output();
  if (norm.add) alone.inputs[1] = both.inputs[1];
  std::copy(both.params.begin() + static_cast<ptrdiff_t>(own), both.params.end(),
            alone.params.begin());
  alone.states = both.states;
  EXPECT_EQ(alone.Forward(), Outcome::kOk);
  return alone.output();
}

void Check(const Case& c, const BatchNormOptions& norm, CompileRequest request,
           const std::string& name, const std::string& what) {
  request.implementations = {"", name};
  for (const bool in_place : {false, true}) {
    LayerRun run(Conv(c.conv)->WithNorm(norm), request, in_place);
    ASSERT_EQ(run.compiled().forward.back().kernel->implementation(), name) << what;
    run.states = {RandomValues(run.states[0].size(), 7, 100, 200),
                  RandomValues(run.states[1].size(), 8, 0.1, 2)};
    const Values expected = Separately(c, norm, run, name);
    ASSERT_EQ(run.Forward(), Outcome::kOk) << what;
    if (IsOwn(name)) {
      ExpectSameBits(run.output(), expected, what);
    } else {
      ExpectNear(run.output(), expected, 1e-6, what);
    }
  }
}

TEST(ConvNorm, EveryCandidateGivesWhatTheTwoLayersGive) {
  int own = 0;
  for (const Case& c : kCases) {
    const Dims out = Conv(c.conv)->OutputDims({c.in});
    for (const bool blocked : {false, true}) {
      for (const bool add : {false, true}) {
        for (const int threads : {1, 3}) {
          const BatchNormOptions norm = Norm(c.conv.out_channels, add, /*relu=*/true);
          const std::vector<Dims> dims =
              add ? std::vector<Dims>{c.in, out} : std::vector<Dims>{c.in};
          const CompileRequest request = Request(dims, Mode::kEvaluation, blocked, threads);
          const LayerPtr both = Conv(c.conv)->WithNorm(norm);
          for (const std::string& name : both->Candidates(request, 1)) {
            const std::string what = fmt::format(
                "{} of {}->{} k{}{}{}, {} threads", name, c.conv.in_channels, c.conv.out_channels,
                c.conv.kernel, blocked ? " blocked" : "", add ? " + residual" : "", threads);
            own += IsOwn(name) ? 1 : 0;
            Check(c, norm, request, name, what);
          }
        }
      }
    }
  }
  if (CurrentIsa() != Isa::kBaseline) {
    EXPECT_GE(own, 20);
  }
}

TEST(ConvNorm, ReluIsTheNorms) {
  const Case c = {{.in_channels = 16, .out_channels = 16, .kernel = 1}, {1, 16, 4, 4}};
  LayerRun run(Conv(c.conv)->WithNorm(Norm(16, false, /*relu=*/false)),
               Request({c.in}, Mode::kEvaluation));
  ASSERT_EQ(run.Forward(), Outcome::kOk);
  const Values y = run.output();
  EXPECT_LT(*std::min_element(y.begin(), y.end()), 0);
}

// Evaluation beside training reads the weights as training packed them.
TEST(ConvNorm, TakesTrainingsForms) {
  for (const Case& c : kCases) {
    const CompiledLayer training = Conv(c.conv)->Compile(Request({c.in}));
    const LayerPtr both = Conv(c.conv)->WithNorm(Norm(c.conv.out_channels, false, true));
    CompileRequest request = Request({c.in}, Mode::kEvaluation);
    request.fixed_forms = training.forms;
    request.fixed_grads = training.grads;
    const int norm = c.conv.bias ? 2 : 1;
    const Layout row = Layout::Plain({c.conv.out_channels});
    for (const int param : {norm, norm + 1}) {
      request.fixed_forms.push_back({param, row});
      request.fixed_grads.push_back(row);
    }
    EXPECT_EQ(both->Compile(request).forms.size(), request.fixed_forms.size());
    EXPECT_EQ(LayerRun(both, request).Forward(), Outcome::kOk);
  }
}

TEST(ConvNorm, IsForEvaluationOnly) {
  const LayerPtr both =
      Conv({.in_channels = 16, .out_channels = 16, .kernel = 1})->WithNorm(Norm(16, false, true));
  EXPECT_THROW(both->Compile(Request({{1, 16, 4, 4}})), Error);
  EXPECT_EQ(Relu()->WithNorm(Norm(16, false, true)), nullptr);
}

}  // namespace
}  // namespace parax::testing
