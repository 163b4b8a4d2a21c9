#include "parax/engine/plan_record.h"

#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>

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

std::string MachineKey() { return fmt::format("{}; {}", CpuModel(), KernelLibrary()); }

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
  const nlohmann::json json = {{"format", 1},          {"machine", machine},
                               {"blocked", blocked},   {"blocked_layers", layers},
                               {"winograd", winograd}, {"threads", threads},
                               {"plans", plans},       {"layouts", layouts},
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
  static constexpr const char* kPasses[] = {"forward", "backward data", "backward weights",
                                            "backward"};  // OpKind
  TracePlan described{plan.options.mode == Mode::kTraining, plan.options.batch, {}};
  for (const PlanOp& op : plan.ops) {
    described.ops.push_back({op.name,
                             fmt::format("{} {}", op.layer, kPasses[static_cast<size_t>(op.kind)]),
                             op.kernel->implementation(), op.flops, op.bytes});
  }
  return described;
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
  text += fmt::format("{:<44} {:<34} {:>9} {:>10}\n", "op", "implementation", "MFLOP", "traffic");
  for (const PlanOp& op : plan.ops) {
    text += fmt::format("{:<44} {:<34} {:>9.1f} {:>10}\n", op.name, op.kernel->implementation(),
                        op.flops / 1e6, HumanBytes(op.bytes));
  }
  return text;
}

}  // namespace parax
