#include "parax/layers/onednn_internal.h"

#include "parax/layers/reorder.h"

namespace parax {
namespace {

// The C API is called, not dnnl::primitive::execute: that one builds a vector and a hash map.
class OnednnBound final : public BoundKernel {
 public:
  OnednnBound(dnnl::primitive primitive, const std::vector<OnednnArgument>& arguments,
              std::span<void* const> addresses)
      : primitive_(std::move(primitive)), stream_(OnednnEngine()) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].id == 0) continue;
      memories_.emplace_back(arguments[i].desc, OnednnEngine(), addresses[i]);
      arguments_.push_back({arguments[i].id, memories_.back().get()});
    }
  }

  Outcome Run(const RunContext&) noexcept override {
    const dnnl_status_t status = dnnl_primitive_execute(
        primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()), arguments_.data());
    return status == dnnl_success ? Outcome::kOk : Outcome::kKernelFailed;
  }

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;  // one a bound kernel: an instance's thread never meets another's
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

class OnednnKernel final : public Kernel {
 public:
  OnednnKernel(const dnnl::primitive_desc_base& pd, std::vector<OnednnArgument> arguments,
               const std::string& prefix)
      : primitive_(pd.get()),
        arguments_(std::move(arguments)),
        implementation_(prefix + pd.impl_info_str()),
        scratch_bytes_(pd.scratchpad_desc().get_size()) {
    if (scratch_bytes_ > 0) arguments_.push_back({DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc()});
  }

  std::unique_ptr<BoundKernel> Bind(std::span<void* const> addresses) const override {
    if (addresses.size() != arguments_.size())
      Fail("kernel {} takes {} arguments, was given {}", implementation_, arguments_.size(),
           addresses.size());
    return std::make_unique<OnednnBound>(primitive_, arguments_, addresses);
  }
  std::string implementation() const override { return implementation_; }
  size_t scratch_bytes() const override { return scratch_bytes_; }

 private:
  dnnl::primitive primitive_;
  std::vector<OnednnArgument> arguments_;
  std::string implementation_;
  size_t scratch_bytes_;
};

}  // namespace

const dnnl::engine& OnednnEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

std::shared_ptr<const Kernel> MakeOnednnKernel(const dnnl::primitive_desc_base& pd,
                                               std::vector<OnednnArgument> arguments,
                                               const std::string& prefix) {
  return std::make_shared<OnednnKernel>(pd, std::move(arguments), prefix);
}

CompiledOp MakeOp(OpKind kind, std::shared_ptr<const Kernel> kernel,
                  std::vector<Argument> arguments) {
  if (kernel->scratch_bytes() > 0) arguments.push_back({Role::kScratch, 0, true});
  CompiledOp op;
  op.kernel = std::move(kernel);
  op.arguments = std::move(arguments);
  op.kind = kind;
  return op;
}

std::shared_ptr<const Kernel> MakeReorder(const Layout& from, const Layout& to) {
  const dnnl::memory::desc source = DescOf(from), target = DescOf(to);
  const dnnl::reorder::primitive_desc pd(OnednnEngine(), source, OnednnEngine(), target,
                                         UserScratchpad(), /*allow_empty=*/true);
  if (!pd) Fail("no kernel turns layout {} into {}", from.ToString(), to.ToString());
  return MakeOnednnKernel(pd, {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}}, kReorderPrefix);
}

}  // namespace parax
