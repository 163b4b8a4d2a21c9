#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace parax {

// A length of training as people write it: `500` (steps), `2ep`, `6%` (of the run), `10m` (minutes;
// also `30s`, `2h`).
struct Span {
  enum class Unit { kSteps, kEpochs, kPercent, kSeconds };
  double value = 0;
  Unit unit = Unit::kSteps;
};

// Everything a command was asked to do: flags over --config file over defaults. Plain data, checked
// by CheckValues; whoever uses a value checks it against the data set and machine. See `parax
// <command> --help`.
struct Options {
  std::string command;       // train, eval, predict, plan, topo, tune, bench, sim
  std::string command_line;  // as it was typed, for reports

  // what
  std::string model;                  // name, checkpoint or run folder
  std::string data;                   // folder, or "synthetic"
  std::vector<std::string> inputs;    // predict: files, folders, "-", or one .npy
  std::filesystem::path out;          // run folder; predict: output file
  std::optional<std::string> resume;  // "": newest in --out; "auto"; or a path
  std::filesystem::path init_from;
  std::vector<std::string> freeze;
  bool freeze_norm = false;
  int64_t classes = 0;  // 0: as many as the data set has

  // how long
  std::optional<double> epochs;
  std::optional<uint64_t> max_steps;
  std::optional<Span> eval_every, save_every, warmup;
  int keep = 3;
  std::string best_metric = "accuracy";  // or "loss"
  int patience = 0;                      // evaluations without a better value; 0: off

  // batches and instances
  std::optional<int64_t> batch, bn_group;
  bool drop_last = false;
  int instances = 0, decode_cores = 0;
  int cores_per_instance = 1;      // 0: all
  std::string precision = "fp32";  // or "bf16"
  bool emulate = false;
  std::string layout = "auto";  // auto, nhwc, blocked
  std::string tune = "auto";    // or "off"
  bool winograd = true;
  std::string update_policy = "commit";  // or "eager"
  std::string schedule_policy = "free";  // SchedulePolicyNames()
  int gate = 0;                          // 0: from the measured bandwidth
  double defer_memory = 0.1;
  std::filesystem::path plan;  // plan.json of an earlier run

  // optimizer
  std::string optimizer = "sgd";
  std::optional<double> lr, weight_decay;
  std::string lr_schedule = "cosine";
  std::vector<double> lr_steps;  // epochs, for "step"
  double lr_gamma = 0.1, lr_final = 0;
  double momentum = 0.9, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, trust = 0.001;
  bool nesterov = false;
  double clip_norm = 0, ema = 0;

  // loss and augmentation
  double label_smoothing = 0, dropout = 0, mixup = 0, cutmix = 0, random_erasing = 0;
  std::string class_weights;          // "", "balanced" or a comma-separated list
  std::vector<double> colour_jitter;  // brightness, contrast, saturation, hue
  std::optional<int64_t> image_size, resize;
  std::string crop = "auto";  // auto, random-resized, pad, none
  int64_t pad = 4;
  std::vector<double> scale = {0.25, 1.0}, ratio = {3.0 / 4, 4.0 / 3};
  double flip = 0.5;
  std::string interpolation = "bilinear";
  std::string normalise;  // "", "imagenet", "cifar10" or six numbers mean,std
  bool scaled_decoding = true;
  std::optional<double> val_split;
  bool strict_data = false;

  uint64_t seed = 0;
  int workers = 0;              // decoding threads; 0: chosen
  std::filesystem::path trace;  // file; empty: none
  bool profile = false;
  bool json = false, quiet = false, verbose = false, advice = false, parse_only = false;
  std::optional<int64_t> micro_batch;  // plan, tune
  std::string split = "val";           // eval
  int top = 5;                         // predict
  std::string format = "csv";          // predict: csv or json
  std::string mode = "train";          // bench: or "infer"
  double seconds = 10;                 // bench, sim
  std::string machine = "this";        // sim: or a file that describes one
  std::string sim_policy = "all";      // sim: or a schedule policy
  bool sweep = false;                  // sim: every number of cores an instance

  // Flags (long names, no dashes) that the command line or the config file set, with the text.
  std::map<std::string, std::string> given;
};

// Throws UsageError (unknown flag or config key: names the nearest). Prints --help and --version
// itself, and then returns nothing.
std::optional<Options> ParseCommandLine(int argc, const char* const* argv);
// The options as a config file that --config reads back, every value resolved.
std::string ToToml(const Options& options);
// Reads such a file's text back. `where` names it in errors.
Options FromToml(const std::string& toml, const std::string& where);
// `text` as a word that a shell reads back, for commands to paste.
std::string ShellWord(const std::string& text);
Span ParseSpan(const std::string& text, const std::string& flag);  // throws UsageError

}  // namespace parax
