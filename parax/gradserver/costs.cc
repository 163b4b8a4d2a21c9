#include "parax/gradserver/costs.h"

#include "parax/gradserver/forms_internal.h"
#include "parax/gradserver/layout_internal.h"

namespace parax {
namespace {

// Bytes that an update of one element of the parameter moves, the mean gradient aside.
double UpdateBytes(const ServerOptions& options, const ParameterSpec& parameter) {
  double floats = 2 + 2 * static_cast<double>(StateNames(options.optimizer).size());
  if (options.ema_decay > 0) floats += 2;
  for (const IndexMap& form : parameter.forms) {
    const bool master = options.domain_node.size() == 1 && options.ema_decay == 0 &&
                        IsIdentity(form, parameter.elements);
    if (!master) floats += static_cast<double>(options.domain_node.size());
  }
  return sizeof(float) * floats;
}

}  // namespace

ServerCosts CostsOf(const ServerOptions& options) {
  const ServerLayout layout(options);
  ServerCosts costs;
  costs.two_phases = layout.two_phases;
  for (const ServerLayout::Parameter& parameter : layout.parameters) {
    costs.bucket_of.push_back(parameter.bucket);
  }
  const double gradients = sizeof(float) * static_cast<double>(options.leaf_domain.size());
  for (const ServerLayout::Bucket& bucket : layout.buckets) {
    std::vector<SliceCosts>& slices = costs.slices.emplace_back();
    for (uint32_t s = bucket.first_slice; s < bucket.first_slice + bucket.slices; ++s) {
      SliceCosts slice{.owner = static_cast<int>(s % layout.owners)};
      for (uint32_t c = layout.slice_chunks[s]; c < layout.slice_chunks[s + 1]; ++c) {
        const ServerLayout::Chunk& chunk = layout.chunks[c];
        slice.first += gradients * chunk.count;
        slice.update += UpdateBytes(options, options.parameters[chunk.parameter]) * chunk.count;
        if (!layout.two_phases) continue;
        slice.first += sizeof(float) * chunk.count;
        slice.update += sizeof(float) * chunk.count;
      }
      if (!layout.two_phases) {
        slice.first += slice.update;
        slice.update = 0;
      }
      slices.push_back(slice);
    }
  }
  return costs;
}

}  // namespace parax
