#include <fmt/core.h>

#include "parax/cli/commands.h"
#include "parax/numa/advice.h"

namespace parax {

int RunTopo(const Options& options) {
  const TopologyReport report =
      MakeReport({options.instances, options.cores_per_instance, options.decode_cores});
  if (options.json) {
    fmt::print("{}\n", ReportJson(report));
    return 0;
  }
  for (const std::string& line : ReportLines(report)) fmt::print("{}\n", line);
  if (options.advice) {
    for (const std::string& line : AdviceLines(report)) fmt::print("{}\n", line);
  }
  return 0;
}

}  // namespace parax
