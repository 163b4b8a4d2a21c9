#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parax/cli/options.h"

namespace parax {

// Commands a flag belongs to, as bits.
enum CommandBit : unsigned {
  kTrain = 1,
  kEval = 2,
  kPredict = 4,
  kPlan = 8,
  kTopo = 16,
  kTune = 32,
  kBench = 64,
  kSim = 128
};

// One flag, defined once: the command line, --config files and ToToml all come from it.
struct Flag {
  std::vector<std::string> names;  // without dashes; [0] is also the key in config files
  unsigned commands = 0;
  const char* group = "";
  std::string value;  // what stands for the value in --help; empty: a switch
  std::string help;
  bool list = false;                                                   // takes several values
  bool value_optional = false;                                         // --resume
  std::function<void(Options&, const std::vector<std::string>&)> set;  // throws UsageError
  std::function<std::string(const Options&)> toml;                     // "": not in config files
};

const std::vector<Flag>& Flags();
const Flag* FindFlag(const std::string& name, unsigned command);

struct Command {
  const char* name;
  CommandBit bit;
  const char* summary;
  const char* examples;
};
const std::vector<Command>& Commands();

}  // namespace parax
