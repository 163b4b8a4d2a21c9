#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "parax/base/error.h"
#include "parax/cli/flags_internal.h"
#include "parax/cli/toml.h"
#include "parax/models/resnet.h"
#include "parax/sched/trace.h"

namespace parax {
namespace {

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

template <typename T>
T ParseNumber(const std::string& text, const std::string& name) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool right = error == std::errc() && end == text.data() + text.size();
  if constexpr (std::is_floating_point_v<T>) right = right && std::isfinite(value);
  if (!right) {
    FailUsage("--{} is '{}'; it must be {}", name, text,
              std::is_floating_point_v<T> ? "a number, such as 0.1"
              : std::is_signed_v<T>       ? "a whole number"
                                          : "a whole number, 0 or more");
  }
  return value;
}

template <typename T>
T Parse(const std::string& text, const std::string& name) {
  if constexpr (std::is_same_v<T, Span>) {
    return ParseSpan(text, name);
  } else if constexpr (std::is_arithmetic_v<T>) {
    return ParseNumber<T>(text, name);
  } else {
    return T(text);
  }
}

std::string Text(const Span& span) {
  static constexpr const char* kUnits[] = {"", "ep", "%", "s"};
  return TomlQuote(fmt::format("{}{}", span.value, kUnits[static_cast<int>(span.unit)]));
}
std::string Text(const std::string& text) { return TomlQuote(text); }
std::string Text(const std::filesystem::path& path) { return TomlQuote(path.string()); }
std::string Text(bool value) { return value ? "true" : "false"; }
template <typename T>
requires std::is_arithmetic_v<T> std::string Text(T value) { return fmt::format("{}", value); }
template <typename T>
std::string Text(const std::vector<T>& values) {
  std::vector<std::string> parts;
  for (const T& value : values) parts.push_back(Text(value));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

// A flag for a member of Options, whatever its type. `names`: "batch,b,batch-size".
template <typename T>
Flag For(const std::string& names, T Options::*member, unsigned commands, const char* group,
         std::string value, std::string help) {
  Flag flag;
  for (size_t at = 0; at <= names.size();) {
    const size_t comma = std::min(names.find(',', at), names.size());
    flag.names.push_back(names.substr(at, comma - at));
    at = comma + 1;
  }
  const std::string name = flag.names[0];
  flag.commands = commands;
  flag.group = group;
  flag.value = std::move(value);
  flag.help = std::move(help);
  flag.list = IsVector<T>::value;
  flag.set = [member, name](Options& o, const std::vector<std::string>& values) {
    T& target = o.*member;
    if constexpr (std::is_same_v<T, bool>) {
      if (values.at(0) != "true" && values.at(0) != "false") {
        FailUsage("--{} is '{}'; it must be true or false", name, values[0]);
      }
      target = values[0] == "true";
    } else if constexpr (IsVector<T>::value) {
      target.clear();
      for (const std::string& v : values) {
        target.push_back(Parse<typename T::value_type>(v, name));
      }
    } else if constexpr (IsOptional<T>::value) {
      target = Parse<typename T::value_type>(values.at(0), name);
    } else {
      target = Parse<T>(values.at(0), name);
    }
  };
  flag.toml = [member](const Options& o) -> std::string {
    const T& source = o.*member;
    if constexpr (IsOptional<T>::value) {
      return source ? Text(*source) : std::string();
    } else if constexpr (IsVector<T>::value) {
      return source.empty() ? std::string() : Text(source);
    } else if constexpr (std::is_same_v<T, std::string> ||
                         std::is_same_v<T, std::filesystem::path>) {
      return source.empty() ? std::string() : Text(source);
    } else {
      return Text(source);
    }
  };
  return flag;
}

// The number may also be "all", which is kept as 0.
Flag OrAll(Flag flag) {
  flag.set = [set = flag.set, name = flag.names[0]](Options& o,
                                                    const std::vector<std::string>& values) {
    if (values.at(0) == "0") FailUsage("--{} is 0; it must be 1 or more, or all", name);
    set(o, values[0] == "all" ? std::vector<std::string>{"0"} : values);
  };
  flag.toml = [toml = flag.toml](const Options& o) {
    const std::string text = toml(o);
    return text == "0" ? TomlQuote("all") : text;
  };
  return flag;
}

std::vector<Flag> MakeFlags() {
  using O = Options;
  const char* basics = "What";
  const char* length = "How long";
  const char* machine = "Batches and instances";
  const char* optimizer = "Optimizer";
  const char* augment = "Loss and augmentation";
  const char* output = "Output";
  const unsigned runs = kTrain | kEval | kPredict;
  const unsigned all = runs | kPlan | kTopo | kTune | kBench | kSim;
  std::vector<Flag> flags = {
      For("model,m", &O::model, kTrain | kPlan | kTune | kSim, basics, "NAME",
          fmt::format("network: {}, or resnet:bottleneck:BLOCKS", fmt::join(ModelNames(), " "))),
      For("model,m", &O::model, kEval | kPredict, basics, "PATH",
          "run folder (its best checkpoint, else its newest) or checkpoint"),
      For("model,m", &O::model, kBench, basics, "NAME or PATH",
          "network, run folder or checkpoint"),
      For("machine", &O::machine, kSim, basics, "FILE",
          "machine to simulate: 'this', or a description such as those in machines/"),
      For("mode", &O::mode, kBench, basics, "NAME", "train or infer"),
      For("data,d", &O::data, kTrain, basics, "FOLDER",
          "folder with train/ and val/, each with a folder of images a class; 'synthetic' for "
          "speed tests"),
      For("data,d", &O::data, kEval, basics, "FOLDER",
          "folder with val/, or with a folder of images a class"),
      For("out,o", &O::out, kTrain, basics, "FOLDER", "run folder (default: runs/<time>-<model>)"),
      For("out,o", &O::out, kPredict, basics, "FILE",
          "file for the results (default: standard output)"),
      For("init-from", &O::init_from, kTrain, basics, "FILE",
          "start from these weights (safetensors file, checkpoint or run folder); a head for other "
          "classes is made anew"),
      For("freeze", &O::freeze, kTrain, basics, "PREFIX...",
          "keep the weights whose names start so as they are, such as --freeze conv1 layer1"),
      For("freeze-norm", &O::freeze_norm, kTrain, basics, "",
          "batch norms use their running statistics and keep them"),
      For("classes", &O::classes, kTrain | kPlan | kTune | kBench | kSim, basics, "N",
          "classes of synthetic data or of a plan (default: the model's own)"),
      For("split", &O::split, kEval, basics, "NAME", "which images: val, test or train"),

      For("seconds", &O::seconds, kBench | kSim, length, "X", "measure so long, after a warm-up"),
      For("epochs,e", &O::epochs, kTrain, length, "N",
          "passes over the training images (default 90; 30 for images of at most 64 pixels)"),
      For("max-steps", &O::max_steps, kTrain, length, "N",
          "at most so many steps (optimizer updates)"),
      For("eval-every", &O::eval_every, kTrain, length, "LENGTH",
          "evaluate on val/ so often: 500 (steps), 2ep, 6%, 10m; 0: only at the end (default 1ep)"),
      For("save-every", &O::save_every, kTrain, length, "LENGTH",
          "save a checkpoint so often (default 1ep)"),
      For("keep", &O::keep, kTrain, length, "N", "newest checkpoints kept; the best one always is"),
      For("best-metric", &O::best_metric, kTrain, length, "NAME",
          "what makes a checkpoint the best: accuracy or loss, on val/"),
      For("patience", &O::patience, kTrain, length, "N",
          "stop after so many evaluations without a better one; 0: never"),

      For("batch,b,batch-size", &O::batch, kTrain | kBench | kSim, machine, "N",
          "images a step over ALL instances together: the GLOBAL batch (not per device)"),
      For("bn-group", &O::bn_group, kTrain | kBench | kSim, machine, "N",
          "images that share batch-norm statistics (default: an instance's share of the batch)"),
      For("micro-batch", &O::micro_batch, kPlan | kTune, machine, "N",
          "images an instance takes through at once"),
      For("drop-last", &O::drop_last, kTrain, machine, "",
          "leave out an epoch's incomplete last batch"),
      For("instances", &O::instances, all, machine, "N",
          "instances to run; 0: one a physical core"),
      OrAll(For("cores-per-instance", &O::cores_per_instance, all, machine, "N",
                "cores (threads) of each instance; all: as many as --instances can have")),
      For("decode-cores", &O::decode_cores, runs | kTopo, machine, "N",
          "cores set aside for decoding images; 0: decoding shares the instances' cores"),
      For("workers,j", &O::workers, runs, machine, "N", "threads that decode images; 0: chosen"),
      For("precision", &O::precision, runs | kPlan | kTune | kBench, machine, "TYPE",
          "fp32, or bf16 where the CPU has it: activations and multiplied weights of half the "
          "size"),
      For("emulate", &O::emulate, runs | kPlan | kTune | kBench, machine, "",
          "compute bf16 on any CPU, slowly"),
      For("layout", &O::layout, kTrain | kPlan | kTune | kBench | kSim, machine, "NAME",
          "memory layout of activations: auto, nhwc or blocked"),
      For("tune", &O::tune, kTrain | kPlan | kBench | kSim, machine, "NAME",
          "auto: time kernels and layouts on first use, and keep the answer; off: fixed rules"),
      For("winograd", &O::winograd, runs | kPlan | kTune | kBench | kSim, machine, "BOOL",
          "fast 3x3 convolutions by Winograd's algorithm where they pay (default true)"),
      For("update-policy", &O::update_policy, kTrain | kBench | kSim, machine, "NAME",
          "commit: updates wait until all gradients are known to be finite; eager: they don't"),
      For("schedule-policy", &O::schedule_policy, kTrain | kEval | kBench, machine, "NAME",
          "how instances share memory bandwidth: free, stagger, gate or gate+defer; barriered: one "
          "instance a NUMA domain, with all its cores"),
      For("policy,schedule-policy", &O::sim_policy, kSim, machine, "NAME",
          "barriered, free, stagger, gate, gate+defer or all of them"),
      For("sweep", &O::sweep, kSim, machine, "",
          "every number of cores an instance that divides a NUMA domain"),
      For("gate", &O::gate, kTrain | kEval | kBench | kSim, machine, "N",
          "memory-bound ops of a NUMA domain at once, in policies gate and gate+defer; 0: as few "
          "as "
          "saturate its memory, as measured"),
      For("defer-memory", &O::defer_memory, kTrain | kBench | kSim, machine, "X",
          "gate+defer: putting off weight gradients may take this part more of activations' "
          "memory"),
      For("plan", &O::plan, kTrain, machine, "FILE",
          "use the kernels of an earlier run's plan.json: same seed, same bits"),

      For("optimizer,opt", &O::optimizer, kTrain | kPlan | kBench | kSim, optimizer, "NAME",
          "sgd, adam, adamw or lars"),
      For("lr,learning-rate", &O::lr, kTrain, optimizer, "RATE",
          "peak learning rate (default for sgd: 0.1 x sqrt(batch / 256))"),
      For("lr-schedule,sched", &O::lr_schedule, kTrain, optimizer, "NAME",
          "constant, step, cosine, linear or onecycle"),
      For("warmup", &O::warmup, kTrain, optimizer, "LENGTH",
          "the rate rises from 0 so long (default 5%; onecycle 30%)"),
      For("lr-steps", &O::lr_steps, kTrain, optimizer, "EPOCH...",
          "step: epochs after which the rate is multiplied by --lr-gamma"),
      For("lr-gamma", &O::lr_gamma, kTrain, optimizer, "X", "step: the factor"),
      For("lr-final", &O::lr_final, kTrain, optimizer, "X",
          "cosine, linear: last rate as a part of the peak"),
      For("weight-decay,wd", &O::weight_decay, kTrain, optimizer, "X",
          "not applied to biases and norms (default 1e-4; adamw 0.05)"),
      For("momentum", &O::momentum, kTrain, optimizer, "X", "of sgd and lars"),
      For("nesterov", &O::nesterov, kTrain, optimizer, "", "Nesterov momentum (sgd)"),
      For("beta1", &O::beta1, kTrain, optimizer, "X", "of adam and adamw"),
      For("beta2", &O::beta2, kTrain, optimizer, "X", "of adam and adamw"),
      For("epsilon,opt-eps", &O::epsilon, kTrain, optimizer, "X", "of adam and adamw"),
      For("trust", &O::trust, kTrain, optimizer, "X", "of lars: its trust coefficient"),
      For("clip-norm,clip-grad", &O::clip_norm, kTrain, optimizer, "X",
          "clip the gradient's global norm to this; 0: no clipping"),
      For("ema", &O::ema, kTrain, optimizer, "DECAY",
          "average the weights, such as 0.999 (less in the first steps), and evaluate the average; "
          "0: no"),

      For("label-smoothing,smoothing", &O::label_smoothing, kTrain, augment, "X",
          "part of the target spread over all classes"),
      For("class-weights", &O::class_weights, kTrain, augment, "W",
          "'balanced', or a number a class with commas between"),
      For("dropout,drop", &O::dropout, kTrain, augment, "P", "before the last layer"),
      For("image-size,img-size", &O::image_size, kTrain | kPlan | kTune | kBench | kSim, augment,
          "PIXELS", "height and width that the network sees (default: the model's own)"),
      For("resize", &O::resize, kTrain, augment, "PIXELS",
          "evaluation: the shorter side becomes this, then the centre is cropped"),
      For("crop", &O::crop, kTrain, augment, "NAME",
          "random-resized, pad, none; auto: pad where evaluation takes small images whole, else "
          "random-resized"),
      For("pad", &O::pad, kTrain, augment, "PIXELS", "of --crop pad"),
      For("scale", &O::scale, kTrain, augment, "MIN MAX",
          "random-resized: part of the image's area"),
      For("ratio", &O::ratio, kTrain, augment, "MIN MAX", "random-resized: aspect ratio"),
      For("flip,hflip", &O::flip, kTrain, augment, "P", "horizontal flip"),
      For("colour-jitter,color-jitter", &O::colour_jitter, kTrain, augment, "X...",
          "strength of brightness, contrast, saturation, hue"),
      For("random-erasing,reprob", &O::random_erasing, kTrain, augment, "P",
          "grey out a random rectangle"),
      For("mixup", &O::mixup, kTrain, augment, "ALPHA", "blend pairs of images; 0: off"),
      For("cutmix", &O::cutmix, kTrain, augment, "ALPHA",
          "put a part of one image into another; 0: off"),
      For("interpolation", &O::interpolation, kTrain, augment, "NAME", "bilinear or bicubic"),
      For("normalise,normalize", &O::normalise, kTrain, augment, "NAME",
          "imagenet, cifar10, half, none or m,m,m/s,s,s (default: the model's own)"),
      For("scaled-decoding", &O::scaled_decoding, runs, augment, "BOOL",
          "let the JPEG decoder shrink large photographs: much faster, nearly the same pixels"),
      For("val-split", &O::val_split, kTrain, augment, "X",
          "hold this part of train/ out for evaluation, and do not use val/"),
      For("strict-data", &O::strict_data, kTrain | kEval, augment, "",
          "a broken image is an error, not a warning"),

      For("seed", &O::seed, kTrain | kBench | kSim, output, "N",
          "of weights, order and augmentation"),
      For("top", &O::top, kPredict, output, "N", "classes listed an image"),
      For("format", &O::format, kPredict, output, "NAME", "csv or json"),
      For("advice", &O::advice, kTopo, output, "",
          "name each setting that costs speed, and the command that changes it"),
      For("verbose", &O::verbose, kPlan, output, "", "list every op and its traffic"),
      For("json", &O::json, all, output, "", "results as JSON on standard output, and no progress"),
      For("quiet,q", &O::quiet, all, output, "", "results, warnings and errors only"),
  };
  Flag resume = For("resume", &O::resume, kTrain, "What", "[WHERE]",
                    "go on with the run in --out from its newest checkpoint; 'auto': if there is "
                    "one; or name a run folder or checkpoint");
  resume.value_optional = true;
  resume.toml = nullptr;
  flags.insert(flags.begin() + 3, std::move(resume));
  Flag trace = For("trace", &O::trace, kTrain | kEval | kBench, output, "FILE",
                   fmt::format("write what each instance and decoding thread did last (its "
                               "newest {} ops and waits) there, for chrome://tracing or Perfetto",
                               Trace::kEventsPerTrack));
  trace.toml = nullptr;  // of this run of the program alone, not of those that go on with it
  flags.push_back(std::move(trace));
  Flag profile = For("profile", &O::profile, runs | kBench, output, "",
                     "tell where the time went: layer kinds against the machine's peaks, waits, "
                     "the worst ops");
  profile.toml = nullptr;
  flags.push_back(std::move(profile));
  return flags;
}

}  // namespace

const std::vector<Flag>& Flags() {
  static const std::vector<Flag> flags = MakeFlags();
  return flags;
}

const Flag* FindFlag(const std::string& name, unsigned command) {
  for (const Flag& flag : Flags()) {
    if ((flag.commands & command) == 0) continue;
    if (std::find(flag.names.begin(), flag.names.end(), name) != flag.names.end()) return &flag;
  }
  return nullptr;
}

}  // namespace parax
