#include <algorithm>

#include "parax/layers/onednn_internal.h"

namespace parax {
namespace {

struct Gap {
  size_t first, count;  // elements
};

// Where a layout has memory that belongs to no logical index.
std::vector<Gap> Gaps(const Layout& layout) {
  std::vector<bool> used(layout.elements(), false);
  const Dims dims = layout.dims();
  Dims index(dims.size(), 0);
  for (int64_t left = Product(dims); left > 0; --left) {
    used[layout.Offset(index)] = true;
    for (size_t d = dims.size(); d-- > 0 && ++index[d] == dims[d];) index[d] = 0;
  }
  std::vector<Gap> gaps;
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    if (gaps.empty() || gaps.back().first + gaps.back().count != i) gaps.push_back({i, 0});
    ++gaps.back().count;
  }
  return gaps;
}

class ZeroPaddingBound final : public BoundKernel {
 public:
  ZeroPaddingBound(std::unique_ptr<BoundKernel> kernel, float* values, std::vector<Gap> gaps)
      : kernel_(std::move(kernel)), values_(values), gaps_(std::move(gaps)) {}
  Outcome Run(const RunContext& context) noexcept override {
    const Outcome outcome = kernel_->Run(context);
    for (const Gap& gap : gaps_) std::fill_n(values_ + gap.first, gap.count, 0.0f);
    return outcome;
  }

 private:
  std::unique_ptr<BoundKernel> kernel_;
  float* values_;
  std::vector<Gap> gaps_;
};

class ZeroPaddingKernel final : public Kernel {
 public:
  ZeroPaddingKernel(std::shared_ptr<const Kernel> kernel, size_t argument, const Layout& layout)
      : kernel_(std::move(kernel)), argument_(argument), gaps_(Gaps(layout)) {}
  std::unique_ptr<BoundKernel> Bind(std::span<void* const> arguments) const override {
    return std::make_unique<ZeroPaddingBound>(kernel_->Bind(arguments),
                                              static_cast<float*>(arguments[argument_]), gaps_);
  }
  std::string implementation() const override { return kernel_->implementation(); }
  size_t scratch_bytes() const override { return kernel_->scratch_bytes(); }

 private:
  std::shared_ptr<const Kernel> kernel_;
  size_t argument_;
  std::vector<Gap> gaps_;
};

}  // namespace

std::shared_ptr<const Kernel> ZeroPadding(std::shared_ptr<const Kernel> kernel, size_t argument,
                                          const Layout& layout) {
  return std::make_shared<ZeroPaddingKernel>(std::move(kernel), argument, layout);
}

}  // namespace parax
