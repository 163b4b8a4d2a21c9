#include "parax/cli/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "parax/base/error.h"
#include "parax/base/log.h"
#include "parax/data/pipeline.h"
#include "parax/engine/checkpoint.h"
#include "parax/engine/weights.h"

namespace parax {
namespace {

// What the types of JSON let pass.
void CheckModelConfig(const ModelConfig& config, const std::string& where) {
  if (config.classes.empty()) Fail("{}: \"classes\" is empty", where);
  if (config.image_size < 1 || config.image_size > kMostImageSize) {
    Fail("{}: \"image_size\" is {}, not between 1 and {}", where, config.image_size,
         kMostImageSize);
  }
  if (config.resize < config.image_size || config.resize > kMostImageSize) {
    Fail("{}: \"resize\" is {}, not between \"image_size\" and {}", where, config.resize,
         kMostImageSize);
  }
  if (config.model.channels != 3) {
    Fail("{}: \"channels\" is {}; images have 3", where, config.model.channels);
  }
  if (config.interpolation != "bilinear" && config.interpolation != "bicubic") {
    Fail("{}: \"interpolation\" is \"{}\", neither bilinear nor bicubic", where,
         config.interpolation);
  }
  for (size_t c = 0; c < config.normalization.std.size(); ++c) {
    if (!std::isfinite(config.normalization.mean[c]) || !(config.normalization.std[c] > 0)) {
      Fail("{}: \"mean\" must be finite and \"std\" above 0", where);
    }
  }
}

// Barriered: all cores of a domain as one instance.
SeatRequest RequestFor(const Options& options, const Topology& topology) {
  SeatRequest request{options.instances, options.cores_per_instance, options.decode_cores};
  if (options.schedule_policy != "barriered") return request;
  request.instances = request.cores_per_instance = 0;
  const auto instances = static_cast<int>(PlanSeats(topology, request).seats.size());
  if (options.instances != 0 && options.instances != instances) {
    FailUsage(
        "--schedule-policy barriered is one instance a NUMA domain, {} here: leave out "
        "--instances {}",
        instances, options.instances);
  }
  return request;
}

// What the schedule policy will do here.
OverlapOptions PlanOverlap(const Options& options, Machine& machine) {
  const std::vector<Seat>& seats = machine.plan.seats;
  OverlapOptions overlap = MeasureOverlap(ParseSchedulePolicy(options.schedule_policy),
                                          options.gate, seats, machine.domain_nodes);
  overlap.defer_memory = options.defer_memory;
  if (overlap.rates.bytes == 0) return overlap;  // no gates
  for (size_t domain = 0; domain < overlap.gate_limit.size(); ++domain) {
    const auto here = std::ranges::count(seats, static_cast<int>(domain), &Seat::domain);
    if (here == 0) continue;
    const int limit = overlap.gate_limit[domain];
    machine.notes.push_back(fmt::format(
        "NUMA domain {}: {} of {} instances may be at memory-bound ops at once{}", domain,
        std::min<int64_t>(limit, here), here, limit < here ? "" : ", so nobody will have to wait"));
  }
  machine.notes.push_back(fmt::format("an instance copies {:.1f} GB/s when all do, {:.1f} alone",
                                      overlap.rates.bytes / 1e9, overlap.rates.bytes_alone / 1e9));
  return overlap;
}

}  // namespace

std::vector<int> Machine::leaf_os_nodes() const {
  std::vector<int> nodes;
  for (const Seat& seat : plan.seats) {
    nodes.push_back(domain_nodes[static_cast<size_t>(seat.domain)]);
  }
  return nodes;
}

std::vector<int> Machine::worker_pus() const {
  if (!plan.reserved_pus.empty()) return plan.reserved_pus;
  std::vector<int> pus;
  for (const Core& core : topology.cores) pus.insert(pus.end(), core.pus.begin(), core.pus.end());
  return pus;
}

Machine PlanMachine(const Options& options, int most_instances, const std::string& why) {
  Machine machine;
  machine.topology = DetectTopology();
  SeatRequest request = RequestFor(options, machine.topology);
  machine.plan = PlanSeats(machine.topology, request);
  const size_t possible = machine.plan.seats.size();
  machine.notes = machine.plan.notes;
  if (options.instances == 0 && most_instances > 0 && static_cast<int>(possible) > most_instances) {
    request.instances = most_instances;
    machine.plan = PlanSeats(machine.topology, request);
    machine.notes = machine.plan.notes;
    machine.notes.push_back(
        fmt::format("{} of {} possible instances: {} (--instances asks for another number)",
                    most_instances, possible, why));
  }
  for (const Domain& domain : machine.topology.domains) {
    // One domain: there is nothing to choose, and mbind may be forbidden (containers).
    machine.domain_nodes.push_back(machine.topology.domains.size() > 1 ? domain.os_node : -1);
  }
  const size_t share = machine.plan.reserved_pus.empty() ? machine.plan.seats.size()
                                                         : machine.plan.reserved_pus.size();
  machine.workers = options.workers > 0 ? options.workers : static_cast<int>(share);
  machine.overlap = PlanOverlap(options, machine);
  return machine;
}

void PrintMachine(const Machine& machine) {
  Info("{}", MachineLine(machine));
  for (const std::string& note : machine.notes) Info("{}", note);
}

std::string MachineLine(const Machine& machine) {
  const int sockets = std::max(1, machine.topology.sockets);
  std::string line =
      fmt::format("{} instance{} on {}x{} cores ({})", machine.plan.seats.size(),
                  machine.plan.seats.size() == 1 ? "" : "s", sockets,
                  machine.topology.machine_cores / sockets, machine.topology.cpu_model);
  const size_t threads = machine.plan.seats[0].pus.size();
  if (threads > 1) line += fmt::format(", {} threads each", threads);
  return line;
}

std::string ToJson(const ModelConfig& config) {
  const nlohmann::ordered_json json = {{"format", 1},
                                       {"architecture", config.model.name},
                                       {"num_classes", config.classes.size()},
                                       {"classes", config.classes},
                                       {"channels", config.model.channels},
                                       {"dropout", config.model.dropout},
                                       {"image_size", config.image_size},
                                       {"resize", config.resize},
                                       {"crop", "center"},
                                       {"interpolation", config.interpolation},
                                       {"mean", config.normalization.mean},
                                       {"std", config.normalization.std}};
  return json.dump(2) + "\n";
}

ModelConfig ParseModelConfig(const std::string& text, const std::string& where) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (json.at("format") != 1) {
      Fail("{}: format {} is not one this version reads (1)", where, json.at("format").dump());
    }
    ModelConfig config;
    json.at("architecture").get_to(config.model.name);
    json.at("classes").get_to(config.classes);
    json.at("channels").get_to(config.model.channels);
    json.at("dropout").get_to(config.model.dropout);
    json.at("image_size").get_to(config.image_size);
    json.at("resize").get_to(config.resize);
    json.at("interpolation").get_to(config.interpolation);
    json.at("mean").get_to(config.normalization.mean);
    json.at("std").get_to(config.normalization.std);
    CheckModelConfig(config, where);
    config.model.classes = static_cast<int64_t>(config.classes.size());
    config.model.image_size = config.image_size;
    return config;
  } catch (const nlohmann::json::exception& e) {
    Fail("{} is not a model configuration: {}", where, e.what());
  }
}

TransformOptions EvalTransform(const ModelConfig& config, const Options& options) {
  TransformOptions transform;
  transform.image_size = static_cast<int>(config.image_size);
  transform.eval_resize = static_cast<int>(config.resize);
  transform.interpolation =
      config.interpolation == "bicubic" ? Interpolation::kBicubic : Interpolation::kBilinear;
  transform.normalization = config.normalization;
  transform.scaled_decoding = options.scaled_decoding;
  return transform;
}

Precision PrecisionOf(const Options& options) {
  Precision precision;
  if (options.precision == Name(DType::kBF16)) precision = {DType::kBF16, options.emulate};
  RequirePrecision(precision);
  return precision;
}

BatchPlan EvalBatches(int64_t samples, int leaves, int64_t micro) {
  BatchPlan plan;
  plan.samples = samples;
  plan.leaves = leaves;
  plan.micro_batch = micro;
  plan.batch = micro * leaves;
  return plan;
}

TrainerOptions EvaluatorOptions(const Machine& machine, const ModelConfig& config,
                                const Options& options, const BatchPlan& batches) {
  TrainerOptions trainer;
  trainer.seats = machine.plan.seats;
  trainer.domain_nodes = machine.domain_nodes;
  trainer.training = false;
  trainer.overlap = machine.overlap;
  trainer.precision = PrecisionOf(options);
  trainer.winograd = options.winograd;
  trainer.eval_sizes = MicroBatchSizes(batches);
  trainer.loss.classes = static_cast<int64_t>(config.classes.size());
  return trainer;
}

std::unique_ptr<InputSource> EvaluationSource(const Machine& machine, const ModelConfig& config,
                                              const Options& options, const Split& split,
                                              const BatchPlan& batches, StopFlag& stop,
                                              Trace* trace) {
  PipelineOptions pipeline;
  pipeline.plan = batches;
  pipeline.shuffle = false;
  pipeline.workers = machine.workers;
  pipeline.worker_pus = machine.worker_pus();
  pipeline.leaf_os_nodes = machine.leaf_os_nodes();
  pipeline.transform = EvalTransform(config, options);
  pipeline.mark_broken = true;
  pipeline.strict = options.strict_data;
  pipeline.tracks = DecodeTracks(trace, machine.workers, "evaluation");
  return MakeImagePipeline(split, pipeline, stop);
}

std::vector<TraceTrack*> DecodeTracks(Trace* trace, int workers, const std::string& what) {
  std::vector<TraceTrack*> tracks;
  for (int w = 0; trace != nullptr && w < workers; ++w) {
    tracks.push_back(&trace->Decoder(fmt::format("decoder {} ({})", w, what)));
  }
  return tracks;
}

bool IsModelPath(const std::string& model) {
  const std::vector<std::string> names = ModelNames();
  return std::ranges::find(names, model) == names.end() &&
         (model.find('/') != std::string::npos || std::filesystem::exists(model));
}

LoadedModel LoadModel(const std::string& model) {
  const ResolvedModel resolved = ResolveModelArgument(model);
  CheckpointContent content = LoadCheckpoint(resolved.checkpoint, CheckpointUse::kPredict);
  LoadedModel loaded;
  loaded.config =
      ParseModelConfig(content.config_json, (resolved.checkpoint / "config.json").string());
  loaded.graph = BuildModel(loaded.config.model);
  const bool averaged = !content.ema.empty();
  loaded.weights = StrictLoad(
      loaded.graph, std::move(averaged ? content.ema : content.model),
      (resolved.checkpoint / (averaged ? "ema.safetensors" : "model.safetensors")).string());
  loaded.checkpoint = resolved.checkpoint;
  loaded.state_json = std::move(content.state_json);
  loaded.line = resolved.line + (averaged ? " (averaged weights)" : "");
  return loaded;
}

}  // namespace parax
