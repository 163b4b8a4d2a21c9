#include "parax/engine/plan_record.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "parax/base/error.h"
#include "parax/base/sha256.h"
#include "parax/base/text.h"
#include "parax/layers/library.h"

namespace parax {
namespace {

std::string Key(Mode mode, int64_t batch) {
  return fmt::format("{}:{}", mode == Mode::kTraining ? "training" : "evaluation", batch);
}

std::string CpuModel() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

}  // namespace

std::string MachineKey(bool emulated) {
  return fmt::format("{}; {}{}", CpuModel(), KernelLibrary(), emulated ? "; emulating bf16" : "");
}

void PlanRecord::Take(const Plan& plan) {
  plans[Key(plan.options.mode, plan.options.batch)] = plan.implementations;
  Sha256 digest;
  const auto add = [&](const std::string& line) { digest.Update(std::as_bytes(std::span(line))); };
  add(layouts);
  for (const PlanParam& param : plan.params) {
    if (!param.grad.empty()) add(param.grad.ToString());
  }
  for (const PlanForm& form : plan.forms) add(form.layout.ToString());
  layouts = digest.Finish();
}

void PlanRecord::Set(Mode mode, int64_t batch, Implementations implementations) {
  plans[Key(mode, batch)] = std::move(implementations);
}

Implementations PlanRecord::For(Mode mode, int64_t batch) const {
  const auto it = plans.find(Key(mode, batch));
  return it == plans.end() ? Implementations() : it->second;
}

std::string PlanRecord::ToJson() const {
  const nlohmann::json json = {{"format", 1},
                               {"machine", machine},
                               {"blocked", blocked},
                               {"blocked_layers", layers},
                               {"winograd", winograd},
                               {"threads", threads},
                               {"precision", Name(precision)},
                               {"plans", plans},
                               {"layouts", layouts},
                               {"hash", Hash()}};
  return json.dump(1);
}

PlanRecord PlanRecord::FromJson(const std::string& text, const std::string& where) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (json.at("format") != 1) Fail("{}: plan format {} is not 1", where, json["format"].dump());
    PlanRecord record;
    json.at("machine").get_to(record.machine);
    json.at("blocked").get_to(record.blocked);
    record.layers = json.value("blocked_layers", LayerLayouts());
    record.winograd = json.value("winograd", true);
    const std::string precision = json.value("precision", "fp32");
    record.precision = precision == Name(DType::kBF16) ? DType::kBF16 : DType::kF32;
    if (precision != Name(record.precision)) Fail("{}: unknown precision {}", where, precision);
    json.at("threads").get_to(record.threads);
    json.at("plans").get_to(record.plans);
    json.at("layouts").get_to(record.layouts);
    if (json.at("hash") != record.Hash()) {
      Fail("{}: the plan's hash does not fit its content: the file was changed or cut", where);
    }
    return record;
  } catch (const nlohmann::json::exception& e) {
    Fail("{} is not a plan: {}", where, e.what());
  }
}

std::string PlanRecord::Hash() const {
  nlohmann::json json = {
      {"blocked", blocked}, {"threads", threads}, {"plans", plans}, {"layouts", layouts}};
  // Records from before layers had layouts of their own keep their hash.
  if (!layers.empty()) json["blocked_layers"] = layers;
  return Sha256Of(json.dump()).substr(0, 12);
}

TracePlan DescribeForTrace(const Plan& plan) {
  TracePlan described{plan.options.mode == Mode::kTraining, plan.options.batch, {}};
  for (const PlanOp& op : plan.ops) {
    described.ops.push_back({op.name, fmt::format("{} {}", op.layer, PassName(op.kind)),
                             op.kernel->implementation(), op.flops, op.bytes});
  }
  return described;
}

OpTraffic TrafficOf(const Plan& plan, const PlanOp& op) {
  double operands = 0, scratch = 0;
  std::set<std::pair<Place, int>> seen;  // an argument that is not used stands for the scratch
  for (const PlanArgument& argument : op.arguments) {
    if (!seen.emplace(argument.place, argument.index).second) continue;
    const auto index = static_cast<size_t>(argument.index);
    switch (argument.place) {
      case Place::kArena: {
        const PlanBuffer& buffer = plan.buffers[index];
        const auto bytes = static_cast<double>(buffer.bytes);
        (buffer.kind == BufferKind::kScratch ? scratch : operands) += bytes;
        break;
      }
      case Place::kForm:
        operands += static_cast<double>(plan.forms[index].layout.bytes());
        break;
      case Place::kGradient:
        operands += static_cast<double>(plan.params[index].grad.bytes());
        break;
      case Place::kState:
        operands += static_cast<double>(Layout::Plain(plan.states[index].spec.dims).bytes());
        break;
    }
  }
  // Batch norm reads its input twice; scratch memory is written and read.
  return {std::max(op.bytes, operands) + 2 * scratch, operands};
}

std::string Describe(const Plan& plan, bool verbose) {
  std::string text =
      fmt::format("{} plan of {} images: {} ops ({} forward), {:.2f} GFLOP, arena {}\n",
                  plan.options.mode == Mode::kTraining ? "training" : "evaluation",
                  plan.options.batch, plan.ops.size(), plan.forward_ops, plan.flops() / 1e9,
                  HumanBytes(static_cast<double>(plan.arena_bytes)));
  static constexpr std::pair<BufferKind, const char*> kKinds[] = {
      {BufferKind::kInput, "input"},
      {BufferKind::kActivation, "activations"},
      {BufferKind::kSaved, "saved for backward"},
      {BufferKind::kGradient, "activation gradients"},
      {BufferKind::kScratch, "scratch"}};
  for (const auto& [kind, name] : kKinds) {
    text += fmt::format("  {:<21} {:>9} at the peak\n", name,
                        HumanBytes(static_cast<double>(plan.BytesAtPeak(kind))));
  }
  if (!verbose) return text;
  text += fmt::format("{:<44} {:<34} {:>9} {:>10} {:>10}\n", "op", "implementation", "MFLOP",
                      "traffic", "least");
  OpTraffic all;
  for (const PlanOp& op : plan.ops) {
    const OpTraffic traffic = TrafficOf(plan, op);
    text +=
        fmt::format("{:<44} {:<34} {:>9.1f} {:>10} {:>10}\n", op.name, op.kernel->implementation(),
                    op.flops / 1e6, HumanBytes(traffic.bytes), HumanBytes(traffic.least));
    all.bytes += traffic.bytes;
    all.least += traffic.least;
  }
  text += fmt::format(
      "traffic of all ops {}, {:.2f} times the least (each operand once, no scratch memory)\n",
      HumanBytes(all.bytes), all.bytes / all.least);
  return text;
}

}  // namespace parax
