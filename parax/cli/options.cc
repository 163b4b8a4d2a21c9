#include "parax/cli/options.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>

#include "parax/base/error.h"
#include "parax/base/file.h"
#include "parax/base/text.h"
#include "parax/cli/flags_internal.h"
#include "parax/cli/toml.h"

namespace parax {
namespace {

std::string Suggestion(const std::string& word, unsigned command, const char* dashes) {
  std::vector<std::string> names;
  for (const Flag& flag : Flags()) {
    for (const std::string& name : flag.names) {
      if ((flag.commands & command) != 0 && name.size() > 1) names.push_back(name);
    }
  }
  const std::string nearest = Nearest(word, names);
  return nearest.empty() ? "" : fmt::format("; did you mean {}{}?", dashes, nearest);
}

// Applies a config file's lines. (CLI11's reader knows neither escapes nor # inside quotes.)
void ApplyConfig(Options& options, const std::string& toml, const std::string& where,
                 unsigned command) {
  for (const TomlItem& item : ParseToml(toml, where)) {
    const std::string line = fmt::format("{}:{}", where, item.line);
    const Flag* flag = FindFlag(item.key, command);
    if (flag == nullptr) {
      FailUsage("{}: unknown key '{}'{}", line, item.key, Suggestion(item.key, command, ""));
    }
    if (!flag->toml) FailUsage("{}: '{}' belongs on the command line", line, item.key);
    if (item.values.empty() || std::ranges::find(item.values, "") != item.values.end()) {
      FailUsage("{}: '{}' is empty; leave it out for the default", line, item.key);
    }
    if (item.is_array && !flag->list) FailUsage("{}: '{}' takes one value", line, item.key);
    if (options.given.contains(flag->names[0]))
      FailUsage("{}: '{}' is there twice", line, item.key);
    try {
      flag->set(options, item.values);
    } catch (const UsageError& error) {
      FailUsage("{}: {}", line, error.what());
    }
    options.given[flag->names[0]] = fmt::format("{}", fmt::join(item.values, " "));
  }
}

// What docs/coming-from.md translates and no alias can.
constexpr std::pair<const char*, const char*> kElsewhere[] = {{"data-dir", "--data"},
                                                              {"data-path", "--data"},
                                                              {"warmup-epochs", "--warmup 5ep"},
                                                              {"lr-warmup-epochs", "--warmup 5ep"},
                                                              {"model-ema", "--ema 0.999"},
                                                              {"model-ema-decay", "--ema"},
                                                              {"pretrained", "--init-from FILE"},
                                                              {"weights", "--init-from FILE"}};

// A value that was forgotten makes the next flag one: `--out --quiet`.
void CheckValue(const Flag& flag, const std::string& value) {
  if (value.empty() && !flag.value_optional) FailUsage("--{} is empty", flag.names[0]);
  const bool is_short = value.size() == 2 && value[0] == '-' && std::isalpha(value[1]) != 0;
  if (value.starts_with("--") || is_short) {
    FailUsage("--{} is followed by {}, not by its value", flag.names[0], value);
  }
}

// What CLI11 would take otherwise than it was meant: of `--flag=` it makes the next word the value,
// and switches are numbers to it.
void CheckAssignments(const std::vector<std::string>& arguments, unsigned command) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    if (argument == "--") return;
    if (argument == "--resume" && i + 1 < arguments.size() && arguments[i + 1].empty()) {
      FailUsage("--resume is empty");  // a script's variable that is not set
    }
    if (!argument.starts_with("--") || equals == std::string::npos) continue;
    const std::string name = argument.substr(2, equals - 2), value = argument.substr(equals + 1);
    if (value.empty()) FailUsage("--{} is empty", name);
    const Flag* flag = FindFlag(name, command);
    if (flag != nullptr && flag->value.empty() && value != "true" && value != "false") {
      FailUsage("--{} is '{}'; it must be true or false", name, value);
    }
  }
}

void AddFlag(CLI::App& app, const Flag& flag, Options& options) {
  std::string names;
  for (const std::string& name : flag.names) {
    names += fmt::format("{}{}{}", names.empty() ? "" : ",", name.size() == 1 ? "-" : "--", name);
  }
  const auto take = [&flag, &options](const std::vector<std::string>& values) {
    flag.set(options, values);
    options.given[flag.names[0]] = fmt::format("{}", fmt::join(values, " "));
  };
  std::string help = flag.help;
  if (flag.value.empty()) {
    app.add_flag_function(
           names, [take](int64_t n) { take({n > 0 ? "true" : "false"}); }, help)
        ->group(flag.group);
    return;
  }
  Options defaults;
  const std::string value = flag.toml ? flag.toml(defaults) : "";
  if (!value.empty() && help.find("default") == std::string::npos) {
    help += fmt::format(" (default {})", value);
  }
  CLI::Option* option = app.add_option_function<std::vector<std::string>>(
      names,
      [take, &flag](const std::vector<std::string>& values) {
        for (const std::string& word : values) CheckValue(flag, word);
        take(flag.value_optional && values.size() == 1 && values[0] == "{}"
                 ? std::vector<std::string>{""}
                 : values);
      },
      help);
  option->type_name(flag.value)->group(flag.group);
  if (flag.value_optional) {
    option->expected(0, 1);
  } else if (flag.list) {
    option->expected(1, 64);
  } else {
    // CLI11 lets options of vectors take what follows: predict's images.
    option->expected(1)->allow_extra_args(false);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
}

const Command* FindCommand(const std::string& name) {
  for (const Command& command : Commands()) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

void PrintOverview() {
  fmt::print(
      "parax {}: trains and runs neural networks on many-core CPUs, one instance per core\n\n"
      "usage: parax COMMAND [FLAGS]\n\n",
      PARAX_VERSION);
  for (const Command& command : Commands()) {
    fmt::print("  {:<9} {}\n", command.name, command.summary);
  }
  fmt::print("\n'parax COMMAND --help' lists a command's flags. First steps:\n{}",
             Commands()[0].examples);
}

// The name after dashes of an argument that CLI11 did not know.
std::string UnknownName(const std::string& argument) {
  const size_t begin = argument.find_first_not_of('-');
  return begin == std::string::npos ? argument : argument.substr(begin, argument.find('=') - begin);
}

void ParseFlags(const Command& command, std::vector<std::string> arguments, Options& options) {
  CLI::App app(fmt::format("{}\n\nExamples:\n{}", command.summary, command.examples),
               fmt::format("parax {}", command.name));
  app.set_help_flag();  // handled before
  app.allow_extras();
  std::string config;
  app.add_option("--config", config, "read flags from this file; those given here come first")
      ->type_name("FILE")
      ->group("What");
  app.add_flag("--parse-only", options.parse_only)->group("");
  for (const Flag& flag : Flags()) {
    if (flag.commands & command.bit) AddFlag(app, flag, options);
  }
  if (command.bit == kPredict) {
    app.add_option("inputs", options.inputs, "images, folders, '-' for a list, or one .npy file");
  }
  const bool help = std::any_of(arguments.begin(), arguments.end(),
                                [](const std::string& a) { return a == "--help" || a == "-h"; });
  if (help) {
    fmt::print("{}", app.help());
    options.command.clear();
    return;
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    FailUsage("{}: {} (see parax {} --help)", command.name, error.what(), command.name);
  }
  for (const std::string& extra : app.remaining()) {
    if (extra == "--" && command.bit == kPredict) continue;  // what follows are file names
    if (!extra.starts_with("-") || extra == "-") {
      FailUsage("{}: unexpected '{}' (see parax {} --help)", command.name, extra, command.name);
    }
    const std::string name = UnknownName(extra);
    std::string suggestion = Suggestion(name, command.bit, "--");
    for (const auto& [theirs, ours] : kElsewhere) {
      if (name == theirs) suggestion = fmt::format("; here that is {}", ours);
    }
    FailUsage(
        "{}: unknown flag '{}'{}", command.name, extra.substr(0, extra.find('=')),
        suggestion.empty() ? fmt::format(" (see parax {} --help)", command.name) : suggestion);
  }
}

// --config's value, which must be known before the flags that override it; "" without one.
std::string ConfigArgument(const std::vector<std::string>& arguments) {
  std::vector<std::string> files;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with("--config=")) files.push_back(arguments[i].substr(9));
    if (arguments[i] == "--config" && i + 1 < arguments.size()) files.push_back(arguments[i + 1]);
  }
  if (files.size() > 1) FailUsage("--config is given {} times; it can be given once", files.size());
  if (!files.empty() && files[0].empty()) FailUsage("--config is empty");
  return files.empty() ? "" : files[0];
}

}  // namespace

std::optional<Options> ParseCommandLine(int argc, const char* const* argv) {
  const std::vector<std::string> all(argv + std::min(argc, 1), argv + argc);
  if (all.empty() || all[0] == "--help" || all[0] == "-h" || all[0] == "help") {
    PrintOverview();
    return std::nullopt;
  }
  if (all[0] == "--version") {
    fmt::print("parax {}\n", PARAX_VERSION);
    return std::nullopt;
  }
  const Command* command = FindCommand(all[0]);
  if (command == nullptr) {
    std::vector<std::string> names;
    for (const Command& c : Commands()) names.emplace_back(c.name);
    const std::string nearest = Nearest(all[0], names);
    FailUsage("unknown command '{}'{}; commands: {}", all[0],
              nearest.empty() ? "" : fmt::format(": did you mean '{}'?", nearest),
              fmt::join(names, ", "));
  }
  Options options;
  options.command = command->name;
  options.command_line = "parax";
  for (const std::string& word : all) options.command_line += " " + ShellWord(word);
  const std::vector<std::string> arguments(all.begin() + 1, all.end());
  CheckAssignments(arguments, command->bit);
  if (const std::string config = ConfigArgument(arguments); !config.empty()) {
    ApplyConfig(options, ReadFile(config, size_t{1} << 20), config, command->bit);
  }
  ParseFlags(*command, arguments, options);
  if (options.command.empty()) return std::nullopt;
  return options;
}

std::string ShellWord(const std::string& text) {
  static constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:=+@%-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  // What a terminal would obey goes into $'...', which bash and zsh know.
  const bool plain = Printable(text) == text;
  std::string word = plain ? "'" : "$'";
  for (const char c : text) {
    if (c == '\'') {
      word += plain ? "'\\''" : "\\'";
    } else {
      word += c == '\\' && !plain ? "\\\\" : std::string(1, c);
    }
  }
  return (plain ? word : Printable(word)) + "'";
}

std::string ToToml(const Options& options) {
  const Command* command = FindCommand(options.command);
  std::string toml;
  for (const Flag& flag : Flags()) {
    if (command != nullptr && (flag.commands & command->bit) == 0) continue;
    const std::string value = flag.toml ? flag.toml(options) : "";
    if (!value.empty()) toml += fmt::format("{} = {}\n", flag.names[0], value);
  }
  return toml;
}

Options FromToml(const std::string& toml, const std::string& where) {
  Options options;
  options.command = "train";
  ApplyConfig(options, toml, where, kTrain);
  options.given.clear();
  return options;
}

Span ParseSpan(const std::string& text, const std::string& name) {
  static const std::vector<std::pair<std::string, std::pair<Span::Unit, double>>> kUnits = {
      {"ep", {Span::Unit::kEpochs, 1}},    {"%", {Span::Unit::kPercent, 1}},
      {"m", {Span::Unit::kSeconds, 60}},   {"s", {Span::Unit::kSeconds, 1}},
      {"h", {Span::Unit::kSeconds, 3600}}, {"", {Span::Unit::kSteps, 1}}};
  for (const auto& [suffix, unit] : kUnits) {
    if (!text.ends_with(suffix) || text.size() == suffix.size()) continue;
    const std::string number = text.substr(0, text.size() - suffix.size());
    double value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    const bool whole = unit.first != Span::Unit::kSteps || value == std::floor(value);
    if (error == std::errc() && end == number.data() + number.size() && value >= 0 &&
        std::isfinite(value) && whole) {
      return {value * unit.second, unit.first};
    }
  }
  FailUsage("--{} is '{}'; it must be like 500 (steps), 2ep, 6%, 10m", name, text);
}

}  // namespace parax
