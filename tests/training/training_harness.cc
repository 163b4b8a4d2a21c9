#include "tests/training/training_harness.h"

#include <cmath>

namespace parax::test {

FixedSource::FixedSource(BatchPlan plan, int64_t image_floats, std::vector<float> images,
                         std::vector<int32_t> labels)
    : plan_(plan),
      image_floats_(image_floats),
      images_(std::move(images)),
      labels_(std::move(labels)),
      cursors_(static_cast<size_t>(plan.leaves)) {
  for (int64_t i = 0; i < plan_.samples; ++i) ids_.push_back(i);
}

Outcome FixedSource::Acquire(int leaf, MicroBatch& batch) noexcept {
  Cursor& cursor = cursors_[static_cast<size_t>(leaf)];
  const int64_t iterations = plan_.IterationsPerEpoch();
  while (cursor.micro >= plan_.MicroBatches(cursor.iteration % iterations, leaf)) {
    ++cursor.iteration;
    cursor.micro = 0;
  }
  const BatchPlan::Piece piece =
      plan_.MicroBatch(cursor.iteration % iterations, leaf, cursor.micro++);
  batch.images = images_.data() + piece.first * image_floats_;
  batch.labels = labels_.data() + piece.first;
  batch.sample_ids = ids_.data() + piece.first;
  batch.count = piece.count;
  return Outcome::kOk;
}

std::vector<float> ChannelsLast(const std::vector<float>& nchw, int64_t n, int64_t c, int64_t h,
                                int64_t w) {
  std::vector<float> nhwc(nchw.size());
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < c; ++k) {
      for (int64_t p = 0; p < h * w; ++p) {
        nhwc[static_cast<size_t>((i * h * w + p) * c + k)] =
            nchw[static_cast<size_t>((i * c + k) * h * w + p)];
      }
    }
  }
  return nhwc;
}

std::vector<Seat> UnboundSeats(int n, int domains) {
  std::vector<Seat> seats;
  for (int i = 0; i < n; ++i) seats.push_back({i, i * domains / n, {0}, /*bind=*/false});
  return seats;
}

TrainerOptions GradientOptions(int n, int64_t samples, int64_t batch, int64_t micro_batch,
                               int64_t classes) {
  TrainerOptions options;
  options.seats = UnboundSeats(n);
  options.domain_nodes = {-1};
  options.train = {samples, batch, n, micro_batch, false};
  options.loss.classes = classes;
  options.optimizer.momentum = 0.9;
  options.learning_rate = [](uint64_t) { return 0.0; };
  options.guards = true;
  return options;
}

double WorstError(const TensorMap& found, const TensorMap& expected, std::string& worst) {
  const auto norm = [](const std::vector<float>& v) {
    double sum = 0;
    for (const float x : v) sum += static_cast<double>(x) * x;
    return std::sqrt(sum);
  };
  double all = 0;
  for (const auto& [name, tensor] : expected) all = std::hypot(all, norm(tensor.values));
  double worst_ratio = 0;
  for (const auto& [name, tensor] : expected) {
    const auto it = found.find(name);
    if (it == found.end() || it->second.values.size() != tensor.values.size()) {
      worst = name + " (missing or of another size)";
      return INFINITY;
    }
    std::vector<float> difference(tensor.values.size());
    for (size_t i = 0; i < difference.size(); ++i) {
      difference[i] = it->second.values[i] - tensor.values[i];
    }
    const double ratio = norm(difference) / (1e-4 * norm(tensor.values) + 1e-7 * all);
    if (!(ratio <= worst_ratio)) {
      worst_ratio = ratio;
      worst = name;
    }
  }
  return worst_ratio;
}

}  // namespace parax::test
