#include <fmt/core.h>

#include "parax/layers/layers.h"
#include "parax/layers/pooling_loops_internal.h"

namespace parax {
namespace {

enum class PoolKind : uint8_t { kMax, kAverage, kGlobalAverage };

class PoolLayer final : public Layer {
 public:
  PoolLayer(PoolKind kind, const PoolOptions& options) : kind_(kind), options_(options) {
    if (options.kernel < 1 || options.stride < 1 || options.padding < 0 ||
        options.padding > options.kernel / 2) {
      Fail("{}: kernel {}, stride {}, padding {}: the padding can be at most half the kernel",
           this->kind(), options.kernel, options.stride, options.padding);
    }
  }

  std::string Signature() const override {
    return fmt::format("{} kernel {} stride {} padding {}{}{}", kind(), options_.kernel,
                       options_.stride, options_.padding, options_.ceil_mode ? " ceil" : "",
                       options_.count_include_pad ? " counts padding" : "");
  }
  std::string kind() const override {
    return kind_ == PoolKind::kMax       ? "max_pool"
           : kind_ == PoolKind::kAverage ? "avg_pool"
                                         : "global_avg_pool";
  }

  Dims OutputDims(const std::vector<Dims>& inputs) const override {
    RequireInputs(*this, inputs, 1);
    const Dims& d = inputs[0];
    if (d.size() != 4) Fail("{}: wants N x C x H x W", kind());
    if (kind_ == PoolKind::kGlobalAverage) return {d[0], d[1]};
    return {d[0], d[1], OutputSize(d[2]), OutputSize(d[3])};
  }

  CompiledLayer Compile(const CompileRequest& request) const override;

 private:
  int64_t OutputSize(int64_t size) const {
    const int64_t room = size + 2 * options_.padding - options_.kernel;
    if (room < 0) Fail("{}: kernel {} is larger than {} pixels", kind(), options_.kernel, size);
    int64_t out = (room + (options_.ceil_mode ? options_.stride - 1 : 0)) / options_.stride + 1;
    // The last window must begin inside the image or the padding before it.
    if (options_.ceil_mode && (out - 1) * options_.stride >= size + options_.padding) --out;
    return out;
  }

  PoolKind kind_;
  PoolOptions options_;
};

CompiledLayer PoolLayer::Compile(const CompileRequest& request) const {
  const DType type = RequireReal(*this, request.inputs);
  const Dims out = OutputDims({request.inputs.at(0).dims()});
  Pool pool;
  CompiledLayer compiled;
  compiled.inputs = {UsableLayout(request.inputs[0], pool.in)};
  const bool global = kind_ == PoolKind::kGlobalAverage;
  compiled.output = global ? Layout::Plain(out, type) : SameArrangement(pool.in, out);
  if (!global) {
    pool.out_height = out[2];
    pool.out_width = out[3];
  }
  pool.kernel = options_.kernel;
  pool.stride = options_.stride;
  pool.padding = options_.padding;
  pool.include_padding = options_.count_include_pad;
  pool.isa = CurrentIsa();
  pool.threads = request.threads;
  const std::string name = fmt::format("parax:{}:{}", kind(), Name(pool.isa));
  const double bytes = static_cast<double>(compiled.inputs[0].bytes()) +
                       static_cast<double>(compiled.output.bytes());
  const bool training = request.mode == Mode::kTraining;
  const PoolKind kind = kind_;
  const bool chooses = kind == PoolKind::kMax && training;
  const size_t indices = chooses ? compiled.output.elements() * sizeof(int32_t) : 0;
  if (chooses) compiled.saved = {indices};
  const double traffic = bytes + static_cast<double>(indices);
  // Without an index the output's address stands in for it, so that all kinds have one list.
  const auto forward = [=](const Addresses<3>& p, const RunContext&) {
    WithElement(type, [&]<typename T>(T) {
      if (kind == PoolKind::kMax) {
        pool.MaxForward(As<T>(p[0]), As<T>(p[1]), chooses ? As<int32_t>(p[2]) : nullptr);
      } else if (kind == PoolKind::kAverage) {
        pool.AverageForward(As<T>(p[0]), As<T>(p[1]));
      } else {
        pool.GlobalForward(As<T>(p[0]), As<T>(p[1]));
      }
    });
    return Outcome::kOk;
  };
  const auto backward = [=](const Addresses<3>& p, const RunContext&) {
    WithElement(type, [&]<typename T>(T) {
      if (kind == PoolKind::kMax) {
        pool.MaxBackward(As<T>(p[0]), As<int32_t>(p[2]), As<T>(p[1]));
      } else if (kind == PoolKind::kAverage) {
        pool.AverageBackward(As<T>(p[0]), As<T>(p[1]));
      } else {
        pool.GlobalBackward(As<T>(p[0]), As<T>(p[1]));
      }
    });
    return Outcome::kOk;
  };
  const Argument y = {Role::kOutput, 0, true}, dx = {Role::kInputGrad, 0, true};
  compiled.forward = {OwnOp(OpKind::kForward, MakeOwnKernel<3>(name, forward),
                            {{Role::kInput}, y, chooses ? Argument{Role::kSaved, 0, true} : y},
                            traffic)};
  if (training && request.need_input_grad.at(0)) {
    compiled.backward = {OwnOp(OpKind::kBackwardData, MakeOwnKernel<3>(name, backward),
                               {{Role::kOutputGrad}, dx, chooses ? Argument{Role::kSaved} : dx},
                               traffic)};
  }
  return compiled;
}

}  // namespace

LayerPtr MaxPool(const PoolOptions& options) {
  return std::make_shared<PoolLayer>(PoolKind::kMax, options);
}
LayerPtr AvgPool(const PoolOptions& options) {
  return std::make_shared<PoolLayer>(PoolKind::kAverage, options);
}
LayerPtr GlobalAvgPool() {
  return std::make_shared<PoolLayer>(PoolKind::kGlobalAverage, PoolOptions{1, 1, 0, false, true});
}

}  // namespace parax
