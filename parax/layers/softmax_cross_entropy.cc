#include <cmath>

#include "parax/layers/layers.h"
#include "parax/layers/own_kernel.h"

namespace parax {
namespace {

// torch.nn.CrossEntropyLoss for one image: loss = sum over classes c of -t[c] log softmax(x)[c],
// with t[c] = class weight[c] * ((1 - smoothing) * q[c] + smoothing / classes), where q is the
// target distribution (one-hot for a class index). Hence d loss / d x[j] = p[j] * sum t - t[j].
struct Rule {
  size_t images, classes;
  double smoothing;
  std::vector<double> weights;  // one a class
  bool evaluation;              // then label -1 stands for an image whose class nobody knows

  double Target(size_t c, double q) const {
    return weights[c] * ((1 - smoothing) * q + smoothing / static_cast<double>(classes));
  }
};

// What an image should be: a class index, or probabilities.
struct Truth {
  const int32_t* labels = nullptr;
  const float* targets = nullptr;

  bool Known(size_t image) const { return targets != nullptr || labels[image] != -1; }
  bool Valid(const Rule& rule, size_t image) const {
    return targets != nullptr || (rule.evaluation && !Known(image)) ||
           (labels[image] >= 0 && static_cast<size_t>(labels[image]) < rule.classes);
  }
  double Share(const Rule& rule, size_t image, size_t c) const {
    if (targets != nullptr) return targets[image * rule.classes + c];
    return static_cast<size_t>(labels[image]) == c ? 1.0 : 0.0;
  }
  size_t Class(const Rule& rule, size_t image) const {  // the most probable one, for counting hits
    if (targets == nullptr) return static_cast<size_t>(labels[image]);
    const float* row = targets + image * rule.classes;
    return static_cast<size_t>(std::max_element(row, row + rule.classes) - row);
  }
};

// How many classes rank before `target`: a tie goes to the lower index, NaN ranks highest (as in
// torch.topk) but a target whose own score is NaN is last.
size_t Rank(const float* x, size_t classes, size_t target) {
  if (std::isnan(x[target])) return classes;
  size_t rank = 0;
  for (size_t c = 0; c < classes; ++c) {
    const bool before = !(x[c] <= x[target]) || (x[c] == x[target] && c < target);
    rank += before ? 1 : 0;
  }
  return rank;
}

void ForwardImage(const Rule& rule, const Truth& truth, size_t image, const float* x, float* p,
                  LossResult& result) {
  float largest = x[0];
  for (size_t c = 1; c < rule.classes; ++c) largest = std::max(largest, x[c]);
  double sum = 0;
  for (size_t c = 0; c < rule.classes; ++c) sum += std::exp(double{x[c]} - largest);
  const double log_sum = std::log(sum);
  for (size_t c = 0; c < rule.classes; ++c) {
    p[c] = static_cast<float>(std::exp(double{x[c]} - largest) / sum);
  }
  result.finite = result.finite && std::isfinite(log_sum);
  if (!truth.Known(image)) return;
  double loss = 0;
  for (size_t c = 0; c < rule.classes; ++c) {
    const double shifted = double{x[c]} - largest;
    const double t = rule.Target(c, truth.Share(rule, image, c));
    if (t != 0) loss += t * (log_sum - shifted);  // a class of no weight may be at -infinity
  }
  const size_t target = truth.Class(rule, image);
  const size_t rank = Rank(x, rule.classes, target);
  result.loss_sum += loss;
  result.weight_sum += truth.targets != nullptr ? 1.0 : rule.weights[target];
  result.correct1 += rank < 1 ? 1 : 0;
  result.correct5 += rank < 5 ? 1 : 0;
  result.count += 1;
  result.finite = result.finite && std::isfinite(loss);
}

Outcome Forward(const Rule& rule, const Truth& truth, const float* x, float* p, LossResult* out) {
  LossResult result;
  for (size_t image = 0; image < rule.images; ++image) {
    if (!truth.Valid(rule, image)) return Outcome::kKernelFailed;
    ForwardImage(rule, truth, image, x + image * rule.classes, p + image * rule.classes, result);
  }
  *out = result;
  return Outcome::kOk;
}

Outcome Backward(const Rule& rule, const Truth& truth, const float* p, float* dx) {
  for (size_t image = 0; image < rule.images; ++image) {
    if (!truth.Valid(rule, image)) return Outcome::kKernelFailed;
    const size_t row = image * rule.classes;
    double sum = 0;
    for (size_t c = 0; c < rule.classes; ++c) sum += rule.Target(c, truth.Share(rule, image, c));
    for (size_t c = 0; c < rule.classes; ++c) {
      const double t = rule.Target(c, truth.Share(rule, image, c));
      dx[row + c] = static_cast<float>(double{p[row + c]} * sum - t);
    }
  }
  return Outcome::kOk;
}

class SoftmaxCrossEntropyLayer final : public Layer {
 public:
  explicit SoftmaxCrossEntropyLayer(const LossOptions& options) : options_(options) {
    if (options.classes < 1) Fail("layer {}: {} classes", kind(), options.classes);
    if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
      Fail("layer {}: label smoothing {} is not in [0, 1]", kind(), options.label_smoothing);
    if (options_.class_weights.empty())
      options_.class_weights.assign(static_cast<size_t>(options.classes), 1.0f);
    if (options_.class_weights.size() != static_cast<size_t>(options.classes))
      Fail("layer {}: {} class weights for {} classes", kind(), options.class_weights.size(),
           options.classes);
    for (const float w : options_.class_weights) {
      if (!(w >= 0 && std::isfinite(w))) Fail("layer {}: class weight {}", kind(), w);
    }
  }

  std::string kind() const override { return "softmax_cross_entropy"; }

  Dims OutputDims(const std::vector<Dims>& inputs) const override {
    RequireInputs(*this, inputs, 1);
    if (inputs[0].size() != 2 || inputs[0][1] != options_.classes)
      Fail("layer {}: takes images x {} scores, not {}", kind(), options_.classes,
           Layout::Plain(inputs[0]).ToString());
    return inputs[0];
  }

  CompiledLayer Compile(const CompileRequest& request) const override {
    if (RequireReal(*this, request.inputs) != DType::kF32)
      Fail("layer {}: takes float32, not bf16", kind());
    const Dims dims = OutputDims({request.inputs.at(0).dims()});
    const Rule rule = {static_cast<size_t>(dims[0]),
                       static_cast<size_t>(dims[1]),
                       options_.label_smoothing,
                       {options_.class_weights.begin(), options_.class_weights.end()},
                       request.mode == Mode::kEvaluation};
    const bool probabilities = options_.probabilities;
    const auto truth = [probabilities](const void* p) {
      return probabilities ? Truth{nullptr, static_cast<const float*>(p)}
                           : Truth{static_cast<const int32_t*>(p), nullptr};
    };
    const Argument truth_argument = {probabilities ? Role::kTargets : Role::kLabels, 0};

    CompiledLayer compiled;
    compiled.inputs = {Layout::Plain(dims)};
    compiled.output = compiled.inputs[0];
    const double bytes = 2 * static_cast<double>(compiled.output.bytes());
    CompiledOp forward =
        OwnOp(OpKind::kForward,
              MakeOwnKernel<4>("parax:softmax_cross_entropy",
                               [=](const Addresses<4>& at, const RunContext&) {
                                 return Forward(rule, truth(at[1]), Floats(at[0]), Floats(at[2]),
                                                static_cast<LossResult*>(at[3]));
                               }),
              {{Role::kInput, 0}, truth_argument, {Role::kOutput, 0, true}, {Role::kLoss, 0, true}},
              bytes);
    compiled.forward = {std::move(forward)};
    if (request.mode == Mode::kTraining && request.need_input_grad.at(0)) {
      CompiledOp backward = OwnOp(
          OpKind::kBackwardData,
          MakeOwnKernel<3>("parax:softmax_cross_entropy_backward",
                           [=](const Addresses<3>& at, const RunContext&) {
                             return Backward(rule, truth(at[1]), Floats(at[0]), Floats(at[2]));
                           }),
          {{Role::kOutput, 0}, truth_argument, {Role::kInputGrad, 0, true}}, bytes);
      backward.in_place_from = 0;
      backward.in_place_to = 2;
      compiled.backward = {std::move(backward)};
    }
    RequireImplementations(*this, request, compiled);
    return compiled;
  }

 private:
  LossOptions options_;
};

}  // namespace

LayerPtr SoftmaxCrossEntropy(const LossOptions& options) {
  return std::make_shared<SoftmaxCrossEntropyLayer>(options);
}

}  // namespace parax
