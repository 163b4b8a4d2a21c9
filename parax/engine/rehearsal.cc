#include "parax/base/error.h"
#include "parax/data/pipeline.h"
#include "parax/engine/rehearsal_internal.h"
#include "parax/engine/weights.h"

namespace parax {
namespace {

constexpr int64_t kSteps = 100;  // an epoch

}  // namespace

Rehearsal::Rehearsal(const Graph& graph, TrainerOptions options, size_t events_a_track)
    : trace_(events_a_track) {
  options.trace = &trace_;  // not the run's: this is tried before
  options.eval_sizes.clear();
  options.learning_rate = [](uint64_t) { return 0.0; };
  options.loss.probabilities = false;
  if (options.train.samples >= options.train.batch) {
    options.train.samples = options.train.batch * kSteps;
  }
  const Dims image = graph.dims(0);
  std::vector<int> nodes;
  for (const Seat& seat : options.seats) {
    nodes.push_back(options.domain_nodes.at(static_cast<size_t>(seat.domain)));
  }
  trainer_ = std::make_unique<Trainer>(graph, options);
  trainer_->Load(InitTensors(graph, options.seed));
  input_ = MakeSyntheticSource(image[2], image[3], image[1], options.loss.classes, options.train,
                               options.seed, nodes);
}

void Rehearsal::Train(uint64_t last, const std::function<void(const StepReport&)>& report,
                      const std::function<bool()>& interrupted) {
  const TrainEnd end = trainer_->Train(last, *input_, report, interrupted);
  if (end.outcome != Outcome::kOk) Fail("training that was to be timed failed: {}", end.reason);
}

std::vector<double> Rehearsal::OpSeconds() const {
  const double second = trace_.SecondsPerCycle();
  std::vector<double> seconds;
  for (size_t op = 0; op < trainer_->plans()[0]->ops.size(); ++op) {
    const OpSum total = trace_.Total(0, op);
    const auto runs = static_cast<double>(total.runs);
    seconds.push_back(runs > 0 ? second * static_cast<double>(total.cycles) / runs : 0);
  }
  return seconds;
}

}  // namespace parax
