#include "parax/layers/layers.h"
#include "parax/layers/own_kernel.h"

namespace parax {
namespace {

// Whether memory order is already (N, C, H, W): always for row-major tensors; without spatial
// extent also for every unpadded layout that does not interleave images.
bool IsRowMajor(const Layout& layout) {
  const Dims dims = layout.dims();
  if (layout == Layout::Plain(dims, layout.dtype())) return true;
  if (layout.padded() || dims[2] != 1 || dims[3] != 1) return false;
  for (const int64_t n : {int64_t{0}, dims[0] - 1}) {
    for (int64_t c = 0; c < dims[1]; ++c) {
      const Dims index = {n, c, 0, 0};
      if (layout.Offset(index) != static_cast<size_t>(n * dims[1] + c)) return false;
    }
  }
  return true;
}

class FlattenLayer final : public Layer {
 public:
  std::string kind() const override { return "flatten"; }

  Dims OutputDims(const std::vector<Dims>& inputs) const override {
    RequireInputs(*this, inputs, 1);
    const Dims& in = inputs[0];
    if (in.size() != 2 && in.size() != 4)
      Fail("layer {}: takes 2 or 4 dimensions, not {}", kind(), Layout::Plain(in).ToString());
    return {in[0], Product(in) / in[0]};
  }

  // Always a view: where the order in memory differs, the plan's reorder does the work.
  CompiledLayer Compile(const CompileRequest& request) const override {
    const DType type = RequireReal(*this, request.inputs);
    const Layout& input = request.inputs.at(0);
    CompiledLayer compiled;
    compiled.inputs = {IsRowMajor(input) ? input : Layout::Plain(input.dims(), type)};
    compiled.output = Layout::Plain(OutputDims({input.dims()}), type);
    compiled.output_is_input = true;
    return compiled;
  }
};

}  // namespace

LayerPtr Flatten() { return std::make_shared<FlattenLayer>(); }

}  // namespace parax
