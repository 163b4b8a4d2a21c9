#pragma once

#include <dnnl.hpp>
#include <memory>
#include <string>
#include <vector>

#include "parax/base/error.h"
#include "parax/layers/kernel.h"
#include "parax/layers/layer.h"

// How our layers use oneDNN. For .cc files of this folder and its tests only: dnnl.hpp is heavy.
namespace parax {

const dnnl::engine& OnednnEngine();

dnnl::memory::desc DescOf(const Layout& layout);
Layout LayoutOf(const dnnl::memory::desc& desc);
dnnl::memory::desc AnyDesc(const Dims& dims, DType type);  // the primitive chooses the layout
inline bool IsBlocked(const dnnl::memory::desc& desc) {    // else nobody but oneDNN can address it
  return desc.get_format_kind() == dnnl::memory::format_kind::blocked;
}

// Attributes of every primitive here: the caller owns the scratchpad, so kernels can be shared.
dnnl::primitive_attr UserScratchpad();

// One argument of a primitive in the order of CompiledOp::arguments: DNNL_ARG_... and its layout.
// `id` 0: of the op, but none of the primitive's.
struct OnednnArgument {
  int id;
  dnnl::memory::desc desc;
};

// The primitive of `pd` as a kernel; its scratchpad becomes the kernel's scratch buffer.
// `prefix` goes before the implementation's name.
std::shared_ptr<const Kernel> MakeOnednnKernel(const dnnl::primitive_desc_base& pd,
                                               std::vector<OnednnArgument> arguments,
                                               const std::string& prefix = "");

// `kernel` with the padding of its fp32 argument `argument` zeroed after each run. oneDNN promises
// zeros but does not keep the promise: jit_1x1:avx2 weight gradients (3.2, stride 2, 4 channels,
// two threads) leave sums there, which would reach norms and packed weights.
std::shared_ptr<const Kernel> ZeroPadding(std::shared_ptr<const Kernel> kernel, size_t argument,
                                          const Layout& layout);

inline constexpr char kReorderPrefix[] = "reorder:";

// Arguments of an op as the plan sees them; adds the scratch argument when the kernel wants one.
CompiledOp MakeOp(OpKind kind, std::shared_ptr<const Kernel> kernel,
                  std::vector<Argument> arguments);

inline bool IsReference(const std::string& implementation) {
  return implementation.find("ref") != std::string::npos;
}

// The entry of CompileRequest::implementations for op `op`; empty: the layer chooses.
inline std::string Wanted(const CompileRequest& request, size_t op) {
  return op < request.implementations.size() ? request.implementations[op] : std::string();
}

// All implementations of a primitive in oneDNN's order of preference, one a name. `first` was made
// with allow_empty; it is used up.
template <class Pd>
std::vector<Pd> AllImplementations(Pd first) {
  std::vector<Pd> all;
  if (!first) return all;
  do {
    const std::string name = first.impl_info_str();
    bool known = false;
    for (const Pd& pd : all) known = known || pd.impl_info_str() == name;
    if (!known) all.push_back(Pd(first.get()));  // the constructor clones
  } while (first.next_impl());
  return all;
}

}  // namespace parax
