#include "parax/cli/commands.h"

#include "parax/base/error.h"
#include "parax/cli/train_setup.h"
#include "parax/engine/schedule.h"
#include "parax/models/resnet.h"

namespace parax {

int RunCommand(const Options& options) {
  if (options.command == "train") return RunTrain(options);
  if (options.command == "eval") return RunEval(options);
  if (options.command == "predict") return RunPredict(options);
  if (options.command == "plan") return RunPlan(options);
  return RunTopo(options);
}

void CheckNames(const Options& options) {
  const bool builds = options.command == "train" || options.command == "plan";
  if (builds && !options.model.empty()) (void)Resolved(ModelSpec{.name = options.model});
  (void)ParseSchedule(options.lr_schedule);
  (void)ParseOptimizer(options.optimizer);
}

}  // namespace parax
