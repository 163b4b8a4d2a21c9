#include <gtest/gtest.h>

#include "parax/base/error.h"
#include "parax/base/isa.h"
#include "tests/layers/reference.h"

namespace parax::testing {
namespace {

struct Shape {
  ConvOptions options;
  Dims in;
};

std::string Describe(const Shape& s) {
  const ConvOptions& o = s.options;
  return fmt::format("{}->{} k{} s{} p{} d{} g{} bias {} on {}x{}x{}", o.in_channels,
                     o.out_channels, o.kernel, o.stride, o.padding, o.dilation, o.groups, o.bias,
                     s.in[0], s.in[2], s.in[3]);
}

const Shape kShapes[] = {
    {{.in_channels = 3, .out_channels = 16, .kernel = 7, .stride = 2, .padding = 3},
     {2, 3, 19, 17}},
    {{.in_channels = 16, .out_channels = 32, .kernel = 3, .padding = 1}, {2, 16, 9, 11}},
    {{.in_channels = 32, .out_channels = 32, .kernel = 3, .stride = 2, .padding = 1},
     {3, 32, 10, 7}},
    {{.in_channels = 32, .out_channels = 64, .kernel = 1}, {2, 32, 6, 5}},
    {{.in_channels = 64, .out_channels = 32, .kernel = 1, .stride = 2}, {2, 64, 7, 8}},
    {{.in_channels = 1, .out_channels = 5, .kernel = 3, .bias = true}, {1, 1, 5, 6}},
    {{.in_channels = 5, .out_channels = 17, .kernel = 3, .padding = 2, .dilation = 2, .bias = true},
     {2, 5, 9, 8}},
    {{.in_channels = 17, .out_channels = 3, .kernel = 1, .bias = true}, {3, 17, 4, 3}},
    {{.in_channels = 5, .out_channels = 5, .kernel = 1, .stride = 3}, {2, 5, 8, 7}},
    {{.in_channels = 16, .out_channels = 16, .kernel = 3, .padding = 1, .groups = 16},
     {2, 16, 7, 9}},
    {{.in_channels = 17, .out_channels = 17, .kernel = 3, .stride = 2, .padding = 1, .groups = 17},
     {1, 17, 8, 5}},
    {{.in_channels = 32, .out_channels = 64, .kernel = 3, .padding = 1, .groups = 4, .bias = true},
     {2, 32, 6, 6}},
    {{.in_channels = 6, .out_channels = 10, .kernel = 3, .padding = 1, .groups = 2}, {2, 6, 5, 7}},
    // Winograd: several blocks of tiles, windows over every border, an odd number of panels.
    {{.in_channels = 16, .out_channels = 32, .kernel = 3, .padding = 1}, {4, 16, 13, 14}},
    {{.in_channels = 48, .out_channels = 16, .kernel = 3}, {2, 48, 6, 17}},
    {{.in_channels = 16, .out_channels = 48, .kernel = 3, .padding = 2}, {1, 16, 1, 3}},
};

struct Expected {
  Values output;
  ReferenceGrads grads;
};

// What the loops say of the values that every LayerRun of this shape starts with.
Expected ReferenceOf(const Shape& shape) {
  const LayerRun run(Conv(shape.options), Request({shape.in}));
  const Dims out = run.layer().OutputDims({shape.in});
  const Values bias = shape.options.bias ? run.params[1] : Values{};
  return {ReferenceConv(shape.options, shape.in, run.inputs[0], run.params[0], bias, out),
          ReferenceConvBackward(shape.options, shape.in, run.inputs[0], run.params[0], out,
                                run.output_grad)};
}

void ExpectMatches(const Expected& expected, LayerRun& run, const std::string& what,
                   double tolerance = 1e-5) {
  ASSERT_EQ(run.Forward(), Outcome::kOk) << what;
  ExpectNear(run.output(), expected.output, tolerance, what + " output");
  ASSERT_EQ(run.Backward(), Outcome::kOk) << what;
  ExpectNear(run.input_grad(0), expected.grads.input, tolerance, what + " input gradient");
  ExpectNear(run.param_grad(0), expected.grads.weight, tolerance, what + " weight gradient");
  if (run.params.size() > 1)
    ExpectNear(run.param_grad(1), expected.grads.bias, tolerance, what + " bias gradient");
}

void ExpectMatchesReference(const Shape& shape, const CompileRequest& request,
                            const std::string& what) {
  LayerRun run(Conv(shape.options), request);
  ExpectMatches(ReferenceOf(shape), run, what);
}

TEST(Conv, MatchesLoopsOnOddShapesInBothLayoutsOnOneAndTwoThreads) {
  for (const Shape& shape : kShapes) {
    const Expected expected = ReferenceOf(shape);
    for (const bool blocked : {false, true}) {
      for (const int threads : {1, 2}) {
        LayerRun run(Conv(shape.options), Request({shape.in}, Mode::kTraining, blocked, threads));
        ExpectMatches(expected, run,
                      Describe(shape) + (blocked ? " blocked" : " channels last") +
                          (threads == 2 ? " two threads" : ""));
      }
    }
  }
}

TEST(Conv, EveryImplementationOfEveryPassMatchesLoops) {
  for (const Shape& shape : kShapes) {
    const Expected expected = ReferenceOf(shape);
    for (const bool blocked : {false, true}) {
      CompileRequest request = Request({shape.in}, Mode::kTraining, blocked);
      for (int op = 0; op < 3; ++op) {
        request.implementations.clear();
        for (const std::string& name : Conv(shape.options)->Candidates(request, op)) {
          request.implementations.assign(3, "");
          request.implementations[static_cast<size_t>(op)] = name;
          LayerRun run(Conv(shape.options), request);
          ExpectMatches(expected, run, Describe(shape) + " forced " + name);
          const CompiledLayer& compiled = run.compiled();
          const CompiledOp& forced =
              op == 0 ? compiled.forward[0] : compiled.backward[static_cast<size_t>(op) - 1];
          EXPECT_EQ(forced.kernel->implementation(), name);
        }
      }
    }
  }
}

TEST(Conv, GradientsMatchCentralDifferences) {
  for (const size_t i : {2, 6, 8, 11, 13}) {
    LayerRun run(Conv(kShapes[i].options), Request({kShapes[i].in}));
    ExpectGradientsMatch(run, {.most_checked = 40});
  }
}

// Winograd by default where the tiles pay for the transform of the weights, and only there; its
// rounding errors are held to the same bound as those of direct convolution.
TEST(Conv, WinogradWhereItPaysAndAsExactAsDirect) {
  const ConvOptions options{.in_channels = 64, .out_channels = 64, .kernel = 3, .padding = 1};
  const auto names = [&](int64_t images, bool winograd) {
    CompileRequest request = Request({{images, 64, 8, 8}});
    request.winograd = winograd;
    const CompiledLayer compiled = Conv(options)->Compile(request);
    return std::vector{compiled.forward[0].kernel->implementation(),
                       compiled.backward[0].kernel->implementation(),
                       compiled.backward[1].kernel->implementation()};
  };
  if (CurrentIsa() == Isa::kBaseline) GTEST_SKIP() << "Winograd kernels need AVX2";
  EXPECT_EQ(names(8, true), std::vector<std::string>(3, "parax:winograd"));
  for (const auto& few : {names(1, true), names(8, false)})
    for (const std::string& name : few) EXPECT_NE(name, "parax:winograd");

  const Shape shape{options, {8, 64, 8, 8}};
  const Expected expected = ReferenceOf(shape);
  for (const bool winograd : {false, true}) {
    CompileRequest request = Request({shape.in});
    request.winograd = winograd;
    LayerRun run(Conv(options), request);
    ExpectMatches(expected, run, winograd ? "Winograd" : "direct", 2e-6);
  }
}

// The plan's default on common ResNet shapes, blocked or not, is never a reference kernel.
TEST(Conv, DefaultIsNoReferenceKernel) {
  const Shape shapes[] = {
      {{.in_channels = 3, .out_channels = 64, .kernel = 7, .stride = 2, .padding = 3},
       {2, 3, 224, 224}},
      {{.in_channels = 3, .out_channels = 16, .kernel = 3, .padding = 1}, {2, 3, 32, 32}},
      {{.in_channels = 64, .out_channels = 64, .kernel = 3, .padding = 1}, {2, 64, 56, 56}},
      {{.in_channels = 256, .out_channels = 512, .kernel = 1, .stride = 2}, {2, 256, 56, 56}},
      {{.in_channels = 512, .out_channels = 2048, .kernel = 1}, {2, 512, 7, 7}},
      {{.in_channels = 128, .out_channels = 128, .kernel = 3, .padding = 1, .groups = 32},
       {2, 128, 56, 56}},
  };
  for (const Shape& shape : shapes) {
    for (const bool blocked : {false, true}) {
      CompileRequest request = Request({shape.in}, Mode::kTraining, blocked);
      request.need_input_grad = {shape.options.in_channels > 3};  // not for images
      const CompiledLayer compiled = Conv(shape.options)->Compile(request);
      for (const auto* ops : {&compiled.forward, &compiled.backward})
        for (const CompiledOp& op : *ops)
          EXPECT_EQ(op.kernel->implementation().find("ref"), std::string::npos)
              << Describe(shape) << ": " << op.kernel->implementation();
    }
  }
}

// Other batch sizes and evaluation run on what training packed.
TEST(Conv, CompilesAgainstAnEarlierPlansFormsAndGrads) {
  for (const Shape& shape : kShapes) {
    for (const bool blocked : {false, true}) {
      const CompiledLayer first =
          Conv(shape.options)->Compile(Request({shape.in}, Mode::kTraining, blocked));
      for (const int64_t images : {1, 5}) {
        Shape other = shape;
        other.in[0] = images;
        CompileRequest request = Request({other.in}, Mode::kTraining, blocked);
        request.fixed_forms = first.forms;
        request.fixed_grads = first.grads;
        ExpectMatchesReference(other, request, Describe(other) + " fixed layouts");
        const CompiledLayer second = Conv(shape.options)->Compile(request);
        EXPECT_EQ(second.grads, first.grads);
        request.mode = Mode::kEvaluation;
        LayerRun evaluation(Conv(shape.options), request);
        EXPECT_TRUE(evaluation.compiled().backward.empty());
        ASSERT_EQ(evaluation.Forward(), Outcome::kOk);
        const Values bias = other.options.bias ? evaluation.params[1] : Values{};
        ExpectNear(
            evaluation.output(),
            ReferenceConv(other.options, other.in, evaluation.inputs[0], evaluation.params[0], bias,
                          evaluation.layer().OutputDims({other.in})),
            1e-5, Describe(other) + " evaluation");
      }
    }
  }
}

// A layout that no fast kernel takes costs a reorder, not a reference kernel.
TEST(Conv, GoesRoundLayoutsThatOnlyReferenceKernelsTake) {
  const Shape shape = {{.in_channels = 64, .out_channels = 32, .kernel = 1}, {2, 64, 7, 5}};
  for (const bool blocked : {false, true}) {
    CompileRequest request = Request({shape.in}, Mode::kTraining, blocked);
    const Layout odd = Layout::Plain({32, 64, 1, 1});
    request.fixed_forms = {{0, odd}};
    request.fixed_grads = {odd};
    const CompiledLayer compiled = Conv(shape.options)->Compile(request);
    std::vector<std::string> names;
    for (const auto* ops : {&compiled.forward, &compiled.backward})
      for (const CompiledOp& op : *ops) names.push_back(op.kernel->implementation());
    for (const std::string& name : names) EXPECT_NE(name.rfind("ref", 0), 0u) << name;
    EXPECT_EQ(names[0].rfind("reorder:", 0), 0u) << names[0];
    ExpectMatchesReference(shape, request, "fixed plain layouts");
    request.implementations = names;  // as a saved plan repeats them
    const CompiledLayer again = Conv(shape.options)->Compile(request);
    ASSERT_EQ(again.forward.size() + again.backward.size(), names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      const size_t forward = again.forward.size();
      const CompiledOp& op = i < forward ? again.forward[i] : again.backward[i - forward];
      EXPECT_EQ(op.kernel->implementation(), names[i]);
      const auto all = Conv(shape.options)->Candidates(request, static_cast<int>(i));
      EXPECT_NE(std::find(all.begin(), all.end(), names[i]), all.end()) << names[i];
    }
    ExpectMatchesReference(shape, request, "fixed plain layouts, repeated");
  }
}

TEST(Conv, SkipsWhatNobodyNeeds) {
  CompileRequest request = Request({{2, 16, 8, 8}});
  request.need_input_grad = {false};
  const LayerPtr conv = Conv({.in_channels = 16, .out_channels = 16, .kernel = 3});
  CompiledLayer compiled = conv->Compile(request);
  ASSERT_EQ(compiled.backward.size(), 1u);
  EXPECT_EQ(compiled.backward[0].kind, OpKind::kBackwardWeights);
  request.need_input_grad = {true};
  request.need_param_grad = false;
  compiled = conv->Compile(request);
  ASSERT_EQ(compiled.backward.size(), 1u);
  EXPECT_EQ(compiled.backward[0].kind, OpKind::kBackwardData);
  EXPECT_EQ(compiled.backward[0].flops, 2.0 * 2 * 16 * 6 * 6 * 16 * 9);
  request.implementations = {"no_such_kernel"};
  EXPECT_THROW(conv->Compile(request), Error);
  EXPECT_THROW(conv->OutputDims({{2, 16, 2, 8}}), Error);
  EXPECT_THROW(conv->OutputDims({{2, 15, 8, 8}}), Error);
}

// Case A: with everything one, each weight gradient counts the output pixels.
TEST(Conv, StridedOneByOneWeightGradientOfOnes) {
  const LayerPtr conv = Conv({.in_channels = 4, .out_channels = 8, .kernel = 1, .stride = 2});
  for (const int threads : {1, 2, 4}) {
    CompileRequest request = Request({{32, 4, 32, 32}}, Mode::kTraining, false, threads);
    for (const std::string& name : conv->Candidates(request, 2)) {
      CompileRequest forced = request;
      forced.implementations = {"", "", name};
      LayerRun run(conv, forced);
      run.inputs[0].assign(run.inputs[0].size(), 1.0f);
      run.output_grad.assign(run.output_grad.size(), 1.0f);
      SCOPED_TRACE(name + ", threads " + std::to_string(threads));
      ASSERT_EQ(run.Forward(), Outcome::kOk);
      ASSERT_EQ(run.Backward(), Outcome::kOk);
      EXPECT_EQ(run.param_grad(0), Values(8 * 4, 8192.0f)) << name << ", " << threads << " threads";
    }
  }
}

TEST(Linear, MatchesLoops) {
  for (const bool bias : {false, true}) {
    for (const Dims& in : {Dims{1, 3}, Dims{5, 17}, Dims{32, 64}}) {
      const int64_t out = in[1] == 64 ? 10 : 7;
      // A linear layer is a 1x1 convolution of 1x1 images.
      const ConvOptions o = {.in_channels = in[1], .out_channels = out, .bias = bias};
      const Dims in4 = {in[0], in[1], 1, 1}, out4 = {in[0], out, 1, 1};
      CompileRequest request = Request({in});
      std::vector<std::vector<std::string>> choices = {{}};
      for (const int op : {0, 1, 2})
        for (const std::string& name : Linear(in[1], out, bias)->Candidates(request, op)) {
          choices.push_back(std::vector<std::string>(3));
          choices.back()[static_cast<size_t>(op)] = name;
        }
      for (const auto& choice : choices) {
        for (const int threads : {1, 2}) {
          request.implementations = choice;
          request.threads = threads;
          LayerRun run(Linear(in[1], out, bias), request);
          const std::string what = fmt::format("linear {}x{}->{} bias {}", in[0], in[1], out, bias);
          ASSERT_EQ(run.Forward(), Outcome::kOk);
          ASSERT_EQ(run.Backward(), Outcome::kOk);
          ExpectNear(run.output(),
                     ReferenceConv(o, in4, run.inputs[0], run.params[0],
                                   bias ? run.params[1] : Values{}, out4),
                     1e-5, what);
          const ReferenceGrads expected =
              ReferenceConvBackward(o, in4, run.inputs[0], run.params[0], out4, run.output_grad);
          ExpectNear(run.input_grad(0), expected.input, 1e-5, what + " input gradient");
          ExpectNear(run.param_grad(0), expected.weight, 1e-5, what + " weight gradient");
          if (bias) ExpectNear(run.param_grad(1), expected.bias, 1e-5, what + " bias gradient");
        }
      }
    }
  }
  LayerRun run(Linear(5, 3), Request({{4, 5}}));
  ExpectGradientsMatch(run);
}

}  // namespace
}  // namespace parax::testing
