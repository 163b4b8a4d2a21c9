#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parax/base/error.h"
#include "parax/base/isa.h"
#include "parax/layers/layer.h"

// Kernels of our own, made from plain functions.
namespace parax {

// The addresses an op is bound to, in the order of its arguments.
template <size_t kArguments>
using Addresses = std::array<void*, kArguments>;

template <typename T>
T* As(void* address) {
  return static_cast<T*>(address);
}
inline float* Floats(void* address) { return As<float>(address); }

// A kernel that calls `function(const Addresses<kArguments>&, const RunContext&)`, which returns an
// Outcome and must not allocate, lock, log or throw. Everything else it needs is captured by value.
// With `scratch_bytes` the last argument is its scratch memory.
template <size_t kArguments, typename Function>
std::shared_ptr<const Kernel> MakeOwnKernel(std::string name, Function function,
                                            size_t scratch_bytes = 0) {
  class Bound final : public BoundKernel {
   public:
    Bound(std::span<void* const> arguments, const Function& f) : function_(f) {
      std::copy(arguments.begin(), arguments.end(), addresses_.begin());
    }
    Outcome Run(const RunContext& context) noexcept override {
      return function_(addresses_, context);
    }

   private:
    Addresses<kArguments> addresses_;
    Function function_;
  };
  class Own final : public Kernel {
   public:
    Own(std::string own_name, Function f, size_t scratch)
        : name_(std::move(own_name)), function_(std::move(f)), scratch_bytes_(scratch) {}
    std::unique_ptr<BoundKernel> Bind(std::span<void* const> arguments) const override {
      if (arguments.size() != kArguments)
        Fail("{} takes {} arguments, not {}", name_, kArguments, arguments.size());
      return std::make_unique<Bound>(arguments, function_);
    }
    std::string implementation() const override { return name_; }
    size_t scratch_bytes() const override { return scratch_bytes_; }

   private:
    std::string name_;
    Function function_;
    size_t scratch_bytes_;
  };
  return std::make_shared<Own>(std::move(name), std::move(function), scratch_bytes);
}

// Calls work(begin, end) for pieces of [0, count), cut at multiples of `unit`: one piece for each
// of `threads` OpenMP threads. With one thread OpenMP is left alone.
template <typename Work>
void ForPieces(int threads, size_t count, size_t unit, const Work& work) {
  if (threads <= 1 || count <= unit) return work(size_t{0}, count);
  const size_t units = (count + unit - 1) / unit;
  const size_t piece =
      (units + static_cast<size_t>(threads) - 1) / static_cast<size_t>(threads) * unit;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (size_t begin = 0; begin < count; begin += piece) work(begin, std::min(count, begin + piece));
}

// An op of one of our kernels; `bytes` is its least memory traffic.
CompiledOp OwnOp(OpKind kind, std::shared_ptr<const Kernel> kernel, std::vector<Argument> arguments,
                 double bytes);

// Throws Error unless the layouts are all float32 or all bf16; the type.
DType RequireReal(const Layer& layer, const std::vector<Layout>& layouts);
// Throws Error when the request wants implementations that the compiled ops are not.
void RequireImplementations(const Layer& layer, const CompileRequest& request,
                            const CompiledLayer& compiled);
// Throws Error unless there are `count` inputs.
void RequireInputs(const Layer& layer, const std::vector<Dims>& inputs, size_t count);

}  // namespace parax
