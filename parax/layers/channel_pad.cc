#include <cstring>

#include "parax/layers/layers.h"
#include "parax/layers/own_kernel.h"

namespace parax {
namespace {

// Sizes of one compiled pad; everything is channels last. Channels are counted in bytes: `in` and
// `out` a pixel, `before` in front.
struct PadShape {
  size_t images, height, width, in;   // of the input
  size_t out_height, out_width, out;  // of the output
  size_t before, stride;

  size_t after() const { return out - in - before; }
};

// Output rows [begin, end) of images * out_height.
void PadRows(const PadShape& s, const std::byte* x, std::byte* y, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row) {
    const size_t image = row / s.out_height, h = row % s.out_height * s.stride;
    const std::byte* from = x + (image * s.height + h) * s.width * s.in;
    std::byte* to = y + row * s.out_width * s.out;
    for (size_t w = 0; w < s.out_width; ++w, from += s.stride * s.in, to += s.out) {
      std::memset(to, 0, s.before);
      std::memcpy(to + s.before, from, s.in);
      std::memset(to + s.before + s.in, 0, s.after());
    }
  }
}

// Input rows [begin, end) of images * height: pixels that forward skipped get zero.
void UnpadRows(const PadShape& s, const std::byte* dy, std::byte* dx, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row) {
    const size_t image = row / s.height, h = row % s.height;
    std::byte* to = dx + row * s.width * s.in;
    std::memset(to, 0, s.width * s.in);
    if (h % s.stride != 0) continue;
    const std::byte* from =
        dy + (image * s.out_height + h / s.stride) * s.out_width * s.out + s.before;
    for (size_t w = 0; w < s.out_width; ++w, from += s.out, to += s.stride * s.in)
      std::memcpy(to, from, s.in);
  }
}

class ChannelPadLayer final : public Layer {
 public:
  ChannelPadLayer(int64_t channels, int64_t before, int64_t stride)
      : channels_(channels), before_(before), stride_(stride) {
    if (channels < 1 || before < 0 || stride < 1)
      Fail("layer {}: {} channels, {} in front, stride {} is impossible", kind(), channels, before,
           stride);
  }

  std::string kind() const override { return "channel_pad"; }

  Dims OutputDims(const std::vector<Dims>& inputs) const override {
    RequireInputs(*this, inputs, 1);
    const Dims& in = inputs[0];
    if (in.size() != 4 || in[1] + before_ > channels_)
      Fail("layer {}: cannot pad {} to {} channels, {} of them in front", kind(),
           Layout::Plain(in).ToString(), channels_, before_);
    return {in[0], channels_, (in[2] - 1) / stride_ + 1, (in[3] - 1) / stride_ + 1};
  }

  CompiledLayer Compile(const CompileRequest& request) const override {
    const DType type = RequireReal(*this, request.inputs);
    const Dims in = request.inputs.at(0).dims(), out = OutputDims({in});
    const auto size = [](int64_t n) { return static_cast<size_t>(n); };
    const size_t channel = SizeOf(type);
    const PadShape shape = {size(in[0]),
                            size(in[2]),
                            size(in[3]),
                            size(in[1]) * channel,
                            size(out[2]),
                            size(out[3]),
                            size(out[1]) * channel,
                            size(before_) * channel,
                            size(stride_)};
    const int threads = request.threads;

    CompiledLayer compiled;
    compiled.inputs = {Layout::ChannelsLast(in, type)};  // a pixel's channels must lie side by side
    compiled.output = Layout::ChannelsLast(out, type);
    const auto read = static_cast<double>(compiled.output.bytes() * shape.in / shape.out);
    const auto written = static_cast<double>(compiled.output.bytes());
    compiled.forward = {OwnOp(OpKind::kForward,
                              MakeOwnKernel<2>("parax:channel_pad",
                                               [=](const Addresses<2>& at, const RunContext&) {
                                                 ForPieces(threads, shape.images * shape.out_height,
                                                           1, [&](size_t begin, size_t end) {
                                                             PadRows(shape, As<std::byte>(at[0]),
                                                                     As<std::byte>(at[1]), begin,
                                                                     end);
                                                           });
                                                 return Outcome::kOk;
                                               }),
                              {{Role::kInput, 0}, {Role::kOutput, 0, true}}, read + written)};
    if (request.mode == Mode::kTraining && request.need_input_grad.at(0)) {
      compiled.backward = {OwnOp(
          OpKind::kBackwardData,
          MakeOwnKernel<2>(
              "parax:channel_pad_backward",
              [=](const Addresses<2>& at, const RunContext&) {
                ForPieces(threads, shape.images * shape.height, 1, [&](size_t begin, size_t end) {
                  UnpadRows(shape, As<std::byte>(at[0]), As<std::byte>(at[1]), begin, end);
                });
                return Outcome::kOk;
              }),
          {{Role::kOutputGrad, 0}, {Role::kInputGrad, 0, true}},
          read + static_cast<double>(compiled.inputs[0].bytes()))};
    }
    RequireImplementations(*this, request, compiled);
    return compiled;
  }

 private:
  int64_t channels_, before_, stride_;
};

}  // namespace

LayerPtr ChannelPad(int64_t channels, int64_t before, int64_t stride) {
  return std::make_shared<ChannelPadLayer>(channels, before, stride);
}

}  // namespace parax
