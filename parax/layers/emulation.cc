#include "parax/layers/elementwise.h"
#include "parax/layers/emulation_internal.h"
#include "parax/layers/reorder.h"
#include "parax/layers/weighted_internal.h"

namespace parax {
namespace {

constexpr size_t kLine = 64;

size_t RoundUp(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// What one argument needs: a float32 copy in the outer arrangement, and behind it one in the inner
// layout if that is another.
struct Copies {
  WidenedArgument argument;
  size_t elements = 0;                        // of the outer layout
  std::shared_ptr<const Kernel> reorder;      // from the one copy to the other; null: one copy
  size_t bytes = 0, second = 0, scratch = 0;  // of all, and where the parts begin
  bool direct() const { return argument.outer == argument.inner; }
};

Copies Plan(const WidenedArgument& argument, int threads) {
  Copies copies{.argument = argument, .elements = argument.outer.elements(), .reorder = nullptr};
  if (copies.direct()) return copies;
  copies.second = copies.scratch = copies.bytes = RoundUp(copies.elements * sizeof(float));
  const Layout wide = argument.outer.WithType(DType::kF32);
  if (wide == argument.inner) return copies;
  if (argument.write) Fail("no way back from {} to {}", argument.inner.ToString(), wide.ToString());
  copies.reorder = MakeReorder(wide, argument.inner, threads);
  copies.scratch = copies.second + RoundUp(argument.inner.bytes());
  copies.bytes = copies.scratch + RoundUp(copies.reorder->scratch_bytes());
  return copies;
}

class WideBound final : public BoundKernel {
 public:
  WideBound(const Kernel& kernel, const std::vector<Copies>& plan, std::span<void* const> arguments,
            int threads)
      : threads_(threads) {
    std::byte* at = static_cast<std::byte*>(arguments.back());
    std::vector<void*> inner;
    for (size_t i = 0; i < plan.size(); ++i) {
      const Copies& copies = plan[i];
      if (copies.direct()) {
        inner.push_back(arguments[i]);
        continue;
      }
      copies_.push_back({arguments[i], reinterpret_cast<float*>(at), copies.elements,
                         copies.argument.write, nullptr});
      inner.push_back(at);
      if (copies.reorder) {
        inner.back() = at + copies.second;
        std::vector<void*> both = {at, inner.back()};
        if (copies.reorder->scratch_bytes() > 0) both.push_back(at + copies.scratch);
        copies_.back().reorder = copies.reorder->Bind(both);
      }
      at += copies.bytes;
    }
    if (kernel.scratch_bytes() > 0) inner.push_back(at);
    kernel_ = kernel.Bind(inner);
  }

  Outcome Run(const RunContext& context) noexcept override {
    Outcome outcome = Outcome::kOk;
    for (const Copy& copy : copies_) {
      if (copy.write) continue;
      Convert(static_cast<const BFloat16*>(copy.outer), copy.wide, copy.elements, threads_);
      if (copy.reorder && outcome == Outcome::kOk) outcome = copy.reorder->Run(context);
    }
    if (outcome == Outcome::kOk) outcome = kernel_->Run(context);
    for (const Copy& copy : copies_) {
      if (copy.write)
        Convert(copy.wide, static_cast<BFloat16*>(copy.outer), copy.elements, threads_);
    }
    return outcome;
  }

 private:
  struct Copy {
    void* outer;
    float* wide;
    size_t elements;
    bool write;
    std::unique_ptr<BoundKernel> reorder;
  };
  std::vector<Copy> copies_;
  std::unique_ptr<BoundKernel> kernel_;
  int threads_;
};

class WideKernel final : public Kernel {
 public:
  WideKernel(std::shared_ptr<const Kernel> kernel, const std::vector<WidenedArgument>& arguments,
             int threads, const std::string& prefix)
      : kernel_(std::move(kernel)), threads_(threads), name_(kernel_->implementation()) {
    if (!name_.starts_with(prefix)) name_.insert(0, prefix);
    bytes_ = kernel_->scratch_bytes();
    for (const WidenedArgument& argument : arguments) {
      plan_.push_back(Plan(argument, threads));
      bytes_ += plan_.back().bytes;
    }
  }
  std::unique_ptr<BoundKernel> Bind(std::span<void* const> arguments) const override {
    if (arguments.size() != plan_.size() + 1)
      Fail("kernel {} takes {} arguments, was given {}", name_, plan_.size() + 1, arguments.size());
    return std::make_unique<WideBound>(*kernel_, plan_, arguments, threads_);
  }
  std::string implementation() const override { return name_; }
  size_t scratch_bytes() const override { return bytes_; }

 private:
  std::shared_ptr<const Kernel> kernel_;
  int threads_;
  std::string name_;
  std::vector<Copies> plan_;
  size_t bytes_ = 0;
};

enum class Pass : uint8_t { kForward, kBackwardData, kBackwardWeights };

// A float32 candidate of `rule` as one on bf16; `plain`: the packed weights. Arguments stand in the
// order of Candidate::arguments.
Candidate Emulated(const Candidate& wide, const WeightedRule& rule, Pass pass, const Layout& plain,
                   int threads) {
  std::vector<WidenedArgument> arguments;
  for (const OnednnArgument& argument : wide.arguments) {
    const Layout layout = LayoutOf(argument.desc);
    arguments.push_back({layout, layout, false});
  }
  const auto round = [&](size_t i) -> WidenedArgument& {
    arguments[i].outer = arguments[i].outer.WithType(DType::kBF16);
    return arguments[i];
  };
  round(0);
  if (pass == Pass::kBackwardWeights) {
    round(1);
  } else {
    arguments[1].outer = plain;
    const bool bias = pass == Pass::kForward && rule.bias > 0;
    round(bias ? 3 : 2).write = true;
  }
  if (rule.norm && rule.norm->add) round(arguments.size() - 1);  // the residual
  Candidate candidate = wide;
  candidate.own =
      OnWidenedCopies(wide.own ? wide.own : MakeOnednnKernel(wide.pd, wide.arguments, wide.prefix),
                      std::move(arguments), threads, kEmulatedPrefix);
  candidate.in_place = false;
  if (pass != Pass::kBackwardWeights) candidate.weights = DescOf(plain);
  return candidate;
}

}  // namespace

std::shared_ptr<const Kernel> OnWidenedCopies(std::shared_ptr<const Kernel> kernel,
                                              std::vector<WidenedArgument> arguments, int threads,
                                              const std::string& prefix) {
  return std::make_shared<WideKernel>(std::move(kernel), arguments, threads, prefix);
}

CompileRequest FloatRequest(const CompileRequest& request) {
  CompileRequest wide = request;
  wide.emulate = wide.blocked = false;
  for (Layout& input : wide.inputs) input = Layout::ChannelsLast(input.dims());
  return wide;
}

WeightedRule EmulateBf16(const WeightedRule& rule, int threads) {
  WeightedRule emulated = rule;
  emulated.dtype = DType::kBF16;
  emulated.input = DescOf(LayoutOf(rule.input).WithType(DType::kBF16));
  emulated.output = DescOf(LayoutOf(rule.output).WithType(DType::kBF16));
  for (std::string& name : emulated.preferred) name.insert(0, kEmulatedPrefix);
  const Layout plain = Layout::Plain(rule.weight_dims, DType::kBF16);
  const auto wrap = [&](const CandidateMaker& maker, Pass pass) -> CandidateMaker {
    return [=](const dnnl::memory::desc& weights) {
      const bool grad = pass == Pass::kBackwardWeights;
      std::vector<Candidate> all;
      for (const Candidate& wide : maker(grad ? weights : AnyDesc(plain.dims(), DType::kF32)))
        all.push_back(Emulated(wide, rule, pass, plain, threads));
      return all;
    };
  };
  emulated.forward = wrap(rule.forward, Pass::kForward);
  emulated.backward_data = wrap(rule.backward_data, Pass::kBackwardData);
  emulated.backward_weights = wrap(rule.backward_weights, Pass::kBackwardWeights);
  return emulated;
}

}  // namespace parax
