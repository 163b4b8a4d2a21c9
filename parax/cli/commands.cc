#include "parax/cli/commands.h"

namespace parax {

int RunCommand(const Options& options) {
  if (options.command == "train") return RunTrain(options);
  if (options.command == "eval") return RunEval(options);
  if (options.command == "predict") return RunPredict(options);
  if (options.command == "plan") return RunPlan(options);
  if (options.command == "tune") return RunTune(options);
  if (options.command == "bench") return RunBench(options);
  if (options.command == "sim") return RunSim(options);
  return RunTopo(options);
}

}  // namespace parax
