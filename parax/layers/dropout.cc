#include <cmath>

#include "parax/base/philox.h"
#include "parax/layers/layers.h"
#include "parax/layers/own_kernel.h"

namespace parax {
namespace {

// Elements are numbered within an image in channels-last order; 64 of them make a group, served by
// 16 Philox blocks of 4 words: element e of group g uses word e/16 of block 16 g + e%16, so that
// every word of 16 neighbouring blocks is one vector.
constexpr size_t kLanes = 16;
constexpr size_t kGroup = 4 * kLanes;

struct Rule {
  size_t per_image, groups;  // elements and groups of an image
  uint32_t threshold;        // an element is kept when its random word is not below
  float scale;
  uint32_t layer_number;
};

// Philox4x32 (base/philox.h) of kLanes neighbouring counters, as a loop that vectorizes.
PARAX_INLINE inline void PhiloxGroup(uint32_t first_block, const std::array<uint32_t, 4>& counter,
                                     const std::array<uint32_t, 2>& key, uint32_t* words) {
  for (size_t lane = 0; lane < kLanes; ++lane) {
    uint32_t c0 = first_block + static_cast<uint32_t>(lane);
    uint32_t c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0;
      const uint64_t p1 = uint64_t{0xCD9E8D57} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(p1);
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    words[lane] = c0;
    words[lane + kLanes] = c1;
    words[lane + 2 * kLanes] = c2;
    words[lane + 3 * kLanes] = c3;
  }
}

// Groups [begin, end) of the micro-batch, counted through its images: y = kept ? scale * x : 0.
template <typename T>
PARAX_INLINE inline void DropGroups(const Rule& rule, const RunContext& context,
                                    const std::array<uint32_t, 4>& folded, size_t begin, size_t end,
                                    const T* x, T* y) {
  alignas(64) uint32_t words[kGroup];
  for (size_t group = begin; group < end; ++group) {
    const size_t image = group / rule.groups, within = group % rule.groups;
    const auto sample = static_cast<uint64_t>(context.sample_ids[image]);
    const std::array<uint32_t, 4> counter = {0, static_cast<uint32_t>(sample),
                                             static_cast<uint32_t>(sample >> 32), folded[2]};
    PhiloxGroup(static_cast<uint32_t>(within * kLanes), counter, {folded[0], folded[1]}, words);
    const size_t first = within * kGroup;
    const size_t count = std::min(kGroup, rule.per_image - first);
    const T* from = x + image * rule.per_image + first;
    T* to = y + image * rule.per_image + first;
#pragma GCC ivdep
    for (size_t i = 0; i < count; ++i) {
      const float scaled = float(from[i]) * rule.scale;
      to[i] = T(words[i] >= rule.threshold ? scaled : 0.0f);
    }
  }
}

// Forward and backward are the same function, of x and of dy: the mask is made again, not stored.
std::shared_ptr<const Kernel> MakeDropout(const Rule& rule, DType type, size_t images,
                                          int threads) {
  return MakeOwnKernel<2>("parax:dropout", [=, isa = CurrentIsa()](const Addresses<2>& at,
                                                                   const RunContext& context) {
    const std::array<uint32_t, 4> folded = Philox4x32(
        {static_cast<uint32_t>(context.iteration), static_cast<uint32_t>(context.iteration >> 32),
         static_cast<uint32_t>(RandomUse::kDropout), rule.layer_number},
        {static_cast<uint32_t>(context.seed), static_cast<uint32_t>(context.seed >> 32)});
    ForPieces(threads, images * rule.groups, kLanes, [&](size_t begin, size_t end) {
      WithElement(type, [&]<typename T>(T) {
        RunAtIsa(isa, [&, begin, end]() PARAX_INLINE {
          DropGroups(rule, context, folded, begin, end, As<T>(at[1]), As<T>(at[0]));
        });
      });
    });
    return Outcome::kOk;
  });
}

class DropoutLayer final : public Layer {
 public:
  DropoutLayer(double probability, uint32_t layer_number)
      : probability_(probability), layer_number_(layer_number) {
    if (!(probability >= 0 && probability < 1))
      Fail("layer {}: probability {} is not in [0, 1)", kind(), probability);
  }

  std::string kind() const override { return "dropout"; }

  Dims OutputDims(const std::vector<Dims>& inputs) const override {
    RequireInputs(*this, inputs, 1);
    return inputs[0];
  }

  CompiledLayer Compile(const CompileRequest& request) const override {
    const DType type = RequireReal(*this, request.inputs);
    CompiledLayer compiled;
    if (request.mode == Mode::kEvaluation || probability_ == 0) {
      compiled.inputs = {request.inputs.at(0)};
      compiled.output = request.inputs.at(0);
      compiled.output_is_input = true;
      return compiled;
    }
    const Dims dims = request.inputs.at(0).dims();
    const Layout layout = Layout::ChannelsLast(dims, type);  // so masks do not depend on the plan
    const auto images = static_cast<size_t>(dims[0]);
    const size_t per_image = layout.elements() / images;
    const Rule rule = {per_image, (per_image + kGroup - 1) / kGroup,
                       static_cast<uint32_t>(std::min(probability_ * 0x1p32, 0x1p32 - 1)),
                       static_cast<float>(1 / (1 - probability_)), layer_number_};
    const auto kernel = MakeDropout(rule, type, images, request.threads);
    const double bytes = 2 * static_cast<double>(layout.bytes());

    compiled.inputs = {layout};
    compiled.output = layout;
    compiled.forward = {
        OwnOp(OpKind::kForward, kernel, {{Role::kOutput, 0, true}, {Role::kInput, 0}}, bytes)};
    if (request.need_input_grad.at(0)) {
      compiled.backward = {OwnOp(OpKind::kBackwardData, kernel,
                                 {{Role::kInputGrad, 0, true}, {Role::kOutputGrad, 0}}, bytes)};
    }
    for (auto* ops : {&compiled.forward, &compiled.backward}) {
      for (CompiledOp& op : *ops) {
        op.in_place_from = 1;
        op.in_place_to = 0;
      }
    }
    RequireImplementations(*this, request, compiled);
    return compiled;
  }

 private:
  double probability_;
  uint32_t layer_number_;
};

}  // namespace

LayerPtr Dropout(double probability, uint32_t layer_number) {
  return std::make_shared<DropoutLayer>(probability, layer_number);
}

}  // namespace parax
