#include <fmt/core.h>

#include <cmath>
#include <vector>

#include "parax/layers/batch_norm_kernels_internal.h"
#include "parax/layers/layers.h"
#include "parax/layers/own_kernel.h"
#include "parax/layers/panels_internal.h"

namespace parax {
namespace {

// Batch norm in one pass less memory traffic than a library's, and the same bits whatever the
// instruction set; see docs/design/layers.md.
class BatchNormLayer final : public Layer {
 public:
  explicit BatchNormLayer(const BatchNormOptions& options) : options_(options) {
    if (options.channels < 1) Fail("batch norm of {} channels", options.channels);
  }
  std::string kind() const override { return "batch_norm"; }

  Dims OutputDims(const std::vector<Dims>& inputs) const override {
    RequireInputs(*this, inputs, 1);
    if (inputs[0].size() != 4 || inputs[0][1] != options_.channels) {
      Fail("batch norm: wants N x {} x H x W", options_.channels);
    }
    return inputs[0];
  }

  std::vector<ParamSpec> Params() const override {
    const Dims dims = {options_.channels};
    const InitRule scale = options_.zero_init_scale ? InitRule::kZeros : InitRule::kOnes;
    return {{"weight", dims, scale, false}, {"bias", dims, InitRule::kZeros, false}};
  }

  std::vector<StateSpec> States() const override {
    const Dims dims = {options_.channels};
    return {{"running_mean", dims, 0}, {"running_var", dims, 1}};
  }

  CompiledLayer Compile(const CompileRequest& request) const override;

 private:
  BatchNormOptions options_;
};

// What the kernels capture.
struct Norm {
  NormShape shape;
  Isa isa = Isa::kBaseline;
  int threads = 1;
  double epsilon = 0;
  bool relu = false;

  // Scratch of a pass, in floats: five coefficient rows, then for each piece of images three rows
  // of double sums and two of float partial sums.
  static constexpr size_t kCoefficients = 5, kSums = 4;
  static constexpr size_t kPiece = 2 * kSums + 2;
  size_t row() const { return (static_cast<size_t>(shape.padded()) + 15) / 16 * 16; }
  int64_t pieces() const { return std::min<int64_t>(threads, shape.images); }
  size_t scratch_bytes() const {
    return (kCoefficients + kPiece * static_cast<size_t>(pieces())) * row() * sizeof(float);
  }
  float* coefficients(float* scratch, size_t i) const { return scratch + i * row(); }
  double* sums(float* scratch, int64_t piece, size_t i) const {
    float* base = scratch + (kCoefficients + kPiece * static_cast<size_t>(piece)) * row();
    return reinterpret_cast<double*>(base) + i * row();
  }
  float* partial(float* scratch, int64_t piece, size_t i) const {
    return coefficients(scratch,
                        kCoefficients + kPiece * static_cast<size_t>(piece) + 2 * kSums + i);
  }

  // work(piece, first image, last image) on the instance's threads; the cut depends on their number
  // only.
  template <typename Work>
  void ForImages(const Work& work) const {
    const int64_t n = pieces();
    if (n == 1) return work(int64_t{0}, int64_t{0}, shape.images);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t p = 0; p < n; ++p) work(p, shape.images * p / n, shape.images * (p + 1) / n);
  }
  // Clears every piece's sums and lets `work` fill them.
  template <typename Work>
  void Sum(float* scratch, const Work& work) const {
    ForImages([&](int64_t piece, int64_t begin, int64_t end) {
      std::fill_n(sums(scratch, piece, 0), kSums * row(), 0.0);
      work(piece, begin, end);
    });
  }

  void Statistics(const float* x, float* mean, float* variance, float* scratch) const {
    Sum(scratch, [&](int64_t piece, int64_t begin, int64_t end) {
      NormMoments(isa, shape, x, begin, end, sums(scratch, piece, 0), sums(scratch, piece, 1),
                  sums(scratch, piece, 2), sums(scratch, piece, 3), partial(scratch, piece, 0),
                  partial(scratch, piece, 1));
    });
    for (size_t c = 0; c < static_cast<size_t>(shape.channels); ++c) {
      double count = 0, centre = 0, m2 = 0;
      for (int64_t p = 0; p < pieces(); ++p) {  // in order: as in NormMoments
        const double n = sums(scratch, p, 0)[c];
        const double delta = sums(scratch, p, 1)[c] - centre;
        m2 += sums(scratch, p, 2)[c] + delta * delta * count * n / (count + n);
        centre += delta * n / (count + n);
        count += n;
      }
      mean[c] = static_cast<float>(centre);
      variance[c] = static_cast<float>(std::max(0.0, m2 / count));  // rounding can go below
    }
  }

  // Fills coefficient rows 0 to 2 with mean, scale and bias; padding lanes stay zero.
  NormForward Coefficients(const float* x, const float* weight, const float* bias,
                           const float* mean, const float* variance, float* scratch) const {
    float* centre = coefficients(scratch, 0);
    float* scale = coefficients(scratch, 1);
    float* shift = coefficients(scratch, 2);
    std::fill_n(scratch, kCoefficients * row(), 0.0f);
    for (size_t c = 0; c < static_cast<size_t>(shape.channels); ++c) {
      centre[c] = mean[c];
      scale[c] =
          static_cast<float>(weight[c] / std::sqrt(static_cast<double>(variance[c]) + epsilon));
      shift[c] = bias[c];
    }
    return {x, centre, scale, shift, relu};
  }

  void Apply(const NormForward& f, float* y) const {
    ForImages([&](int64_t, int64_t begin, int64_t end) {
      NormApply(isa, shape, f.x, f.mean, f.scale, f.bias, relu, begin, end, y);
    });
  }

  // dweight and dbias may be null (frozen). `fixed`: the statistics do not depend on x.
  void Backward(const NormForward& f, const float* dy, const float* variance, bool fixed,
                float* dweight, float* dbias, float* dx, float* scratch) const {
    float* slope = coefficients(scratch, 3);
    float* shift = coefficients(scratch, 4);
    if (dweight != nullptr || !fixed) {
      Sum(scratch, [&](int64_t piece, int64_t begin, int64_t end) {
        NormGradientSums(isa, shape, f, dy, begin, end, sums(scratch, piece, 0),
                         sums(scratch, piece, 1), partial(scratch, piece, 0),
                         partial(scratch, piece, 1));
      });
      for (size_t c = 0; c < static_cast<size_t>(shape.channels); ++c) {
        double sum = 0, dot = 0;
        for (int64_t p = 0; p < pieces(); ++p) {
          sum += sums(scratch, p, 0)[c];
          dot += sums(scratch, p, 1)[c];
        }
        const double inverse = 1.0 / std::sqrt(static_cast<double>(variance[c]) + epsilon);
        if (dweight != nullptr) {
          dbias[c] = static_cast<float>(sum);
          dweight[c] = static_cast<float>(dot * inverse);
        }
        if (fixed) continue;
        // dx = scale (dy - mean(dy) - xhat mean(dy xhat)), with xhat = (x - mean) inverse.
        slope[c] = static_cast<float>(-f.scale[c] * dot * inverse * inverse / shape.values());
        shift[c] = static_cast<float>(-f.scale[c] * sum / shape.values());
      }
    }
    if (dx == nullptr) return;
    ForImages([&](int64_t, int64_t begin, int64_t end) {
      NormInputGradient(isa, shape, f, dy, slope, shift, begin, end, dx);
    });
  }
};

CompiledLayer BatchNormLayer::Compile(const CompileRequest& request) const {
  OutputDims({request.inputs.at(0).dims()});
  RequireFloat(*this, request.inputs);
  Norm norm;
  CompiledLayer compiled;
  Panels panels;
  compiled.inputs = {UsableLayout(request.inputs[0], panels)};
  norm.shape = {panels.images, panels.blocks, panels.height * panels.width_pixels, panels.lanes,
                panels.channels};
  compiled.output = compiled.inputs[0];
  norm.isa = CurrentIsa();
  norm.threads = request.threads;
  norm.epsilon = options_.epsilon;
  norm.relu = options_.relu;
  const Layout row = Layout::Plain({options_.channels});
  compiled.grads = {row, row};
  compiled.forms = {{0, row}, {1, row}};
  compiled.temps = {norm.scratch_bytes()};
  const bool training = request.mode == Mode::kTraining;
  const bool fixed = !training || options_.frozen || !request.need_param_grad;
  const double bytes = static_cast<double>(compiled.output.bytes());
  const std::string name = fmt::format("parax:batch_norm:{}", Name(norm.isa));

  using Args = std::vector<Argument>;
  const Role stat_role = fixed ? Role::kState : Role::kSaved;
  if (!fixed) {
    const size_t stat_bytes = static_cast<size_t>(options_.channels) * sizeof(float);
    compiled.saved = {stat_bytes, stat_bytes};
    compiled.saved_mean = 0;
    compiled.saved_variance = 1;
    compiled.statistics_count = norm.shape.values();
  }
  compiled.forward.push_back(OwnOp(
      OpKind::kForward,
      MakeOwnKernel<7>(name,
                       [norm, fixed](const Addresses<7>& p, const RunContext&) {
                         if (!fixed) {
                           norm.Statistics(Floats(p[0]), Floats(p[3]), Floats(p[4]), Floats(p[6]));
                         }
                         const NormForward f =
                             norm.Coefficients(Floats(p[0]), Floats(p[1]), Floats(p[2]),
                                               Floats(p[3]), Floats(p[4]), Floats(p[6]));
                         norm.Apply(f, Floats(p[5]));
                         return Outcome::kOk;
                       }),
      Args{{Role::kInput, 0, false},
           {Role::kParamForm, 0, false},
           {Role::kParamForm, 1, false},
           {stat_role, 0, !fixed},
           {stat_role, 1, !fixed},
           {Role::kOutput, 0, true},
           {Role::kTemp, 0, true}},
      (fixed ? 2 : 3) * bytes));
  if (fixed && !training) {
    compiled.forward[0].in_place_from = 0;
    compiled.forward[0].in_place_to = 5;
  }
  if (!training) return compiled;

  const bool need_dx = request.need_input_grad.at(0);
  const bool need_params = request.need_param_grad;
  if (!need_dx && !need_params) return compiled;
  // Arguments: x, weight, bias, dy, mean, variance, temp, dx (or temp), dweight, dbias (or temp).
  const Argument temp = {Role::kTemp, 0, true};
  Args args = {{Role::kInput, 0, false},
               {Role::kParamForm, 0, false},
               {Role::kParamForm, 1, false},
               {Role::kOutputGrad, 0, false},
               {stat_role, 0, false},
               {stat_role, 1, false},
               temp,
               need_dx ? Argument{Role::kInputGrad, 0, true} : temp,
               need_params ? Argument{Role::kParamGrad, 0, true} : temp,
               need_params ? Argument{Role::kParamGrad, 1, true} : temp};
  compiled.backward.push_back(
      OwnOp(OpKind::kBackwardBoth,
            MakeOwnKernel<10>(name,
                              [=](const Addresses<10>& p, const RunContext&) {
                                const NormForward f =
                                    norm.Coefficients(Floats(p[0]), Floats(p[1]), Floats(p[2]),
                                                      Floats(p[4]), Floats(p[5]), Floats(p[6]));
                                norm.Backward(f, Floats(p[3]), Floats(p[5]), fixed,
                                              need_params ? Floats(p[8]) : nullptr,
                                              need_params ? Floats(p[9]) : nullptr,
                                              need_dx ? Floats(p[7]) : nullptr, Floats(p[6]));
                                return Outcome::kOk;
                              }),
            std::move(args), 5 * bytes));
  if (need_dx) {
    compiled.backward[0].in_place_from = 3;
    compiled.backward[0].in_place_to = 7;
  }
  return compiled;
}

}  // namespace

LayerPtr BatchNorm(const BatchNormOptions& options) {
  return std::make_shared<BatchNormLayer>(options);
}

}  // namespace parax
