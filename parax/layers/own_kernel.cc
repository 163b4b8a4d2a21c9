#include "parax/layers/own_kernel.h"

namespace parax {

CompiledOp OwnOp(OpKind kind, std::shared_ptr<const Kernel> kernel, std::vector<Argument> arguments,
                 double bytes) {
  CompiledOp op;
  op.kind = kind;
  op.kernel = std::move(kernel);
  op.arguments = std::move(arguments);
  op.bytes = bytes;
  return op;
}

DType RequireReal(const Layer& layer, const std::vector<Layout>& layouts) {
  const DType type = layouts.at(0).dtype();
  for (const Layout& layout : layouts) {
    const bool real = type == DType::kF32 || type == DType::kBF16;
    if (!real || layout.dtype() != type)
      Fail("layer {}: takes float32 or bf16, not {}", layer.kind(), layout.ToString());
  }
  return type;
}

void RequireImplementations(const Layer& layer, const CompileRequest& request,
                            const CompiledLayer& compiled) {
  size_t number = 0;
  for (const auto* ops : {&compiled.forward, &compiled.backward}) {
    for (const CompiledOp& op : *ops) {
      if (number == request.implementations.size()) return;
      const std::string& wanted = request.implementations[number++];
      if (!wanted.empty() && wanted != op.kernel->implementation())
        Fail("layer {}: op {} has no implementation {}, only {}", layer.kind(), number - 1, wanted,
             op.kernel->implementation());
    }
  }
}

void RequireInputs(const Layer& layer, const std::vector<Dims>& inputs, size_t count) {
  if (inputs.size() != count)
    Fail("layer {}: takes {} input(s), not {}", layer.kind(), count, inputs.size());
}

}  // namespace parax
