#include "parax/layers/layer.h"

#include "parax/base/error.h"
#include "parax/layers/layers.h"

namespace parax {

// Layers with one implementation an op need not say more.
std::vector<std::string> Layer::Candidates(const CompileRequest& request, int op) const {
  CompileRequest free = request;
  free.implementations.clear();
  const CompiledLayer compiled = Compile(free);
  const size_t index = static_cast<size_t>(op), forward = compiled.forward.size();
  if (index < forward) return {compiled.forward[index].kernel->implementation()};
  if (index - forward < compiled.backward.size())
    return {compiled.backward[index - forward].kernel->implementation()};
  Fail("layer {} has no op {}", kind(), op);
}

LayerPtr Layer::WithNorm(const BatchNormOptions&) const { return nullptr; }

}  // namespace parax
