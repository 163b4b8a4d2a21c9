#include <fmt/core.h>

#include <algorithm>

#include "parax/cli/profile_internal.h"

namespace parax {
namespace {

constexpr size_t kWorstOps = 5;
constexpr double kWorthTelling = 0.01;  // of the time

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

struct Part {
  const char *name, *key;
  double seconds;
};
std::vector<Part> PartsOf(const Profile& p) {
  std::vector<Part> parts = {{"all ops", "ops", p.compute}};
  if (p.training) {
    parts.push_back({"reduction and update", "reduction", p.reduction});
    parts.push_back({"wait for the gradient server", "server_wait", p.server_wait});
  }
  if (p.gate_wait > 0) parts.push_back({"wait at the gate", "gate_wait", p.gate_wait});
  parts.push_back({"wait for input", "input_wait", p.input_wait});
  parts.push_back({"other", "other", p.other});
  return parts;
}

}  // namespace

std::string ProfileTable(const Profile& p) {
  if (p.images == 0) return "profile: nothing has run\n";
  const double images = static_cast<double>(p.images);
  std::string text = fmt::format(
      "profile of {}: {} instance{}, {} images; times are an instance's\n{:<34} {:>9} {:>7} {:>8} "
      "{:>6} {:>7} {:>6}\n",
      p.training ? "training" : "evaluation", p.instances, p.instances == 1 ? "" : "s", p.images,
      "", "ms/image", "share", "GF/s", "peak", "GB/s", "peak");
  const auto start = [&](const std::string& name, double seconds) {
    return fmt::format("{:<34} {:>9.3f} {:>5.1f} %", name, 1e3 * seconds / images,
                       100 * Ratio(seconds, p.whole));
  };
  for (const ProfileRow& row : p.kinds) {
    const double flops = Ratio(row.flops, row.seconds), bytes = Ratio(row.bytes, row.seconds);
    text += fmt::format(
        "{} {:>8.1f} {:>4.0f} % {:>7.1f} {:>4.0f} %\n", start(row.name, row.seconds), flops / 1e9,
        100 * Ratio(flops, p.peaks.flops), bytes / 1e9, 100 * Ratio(bytes, p.peaks.bandwidth));
  }
  for (const Part& part : PartsOf(p)) text += start(part.name, part.seconds) + "\n";
  if (p.lost > kWorthTelling * p.whole) {
    text += start("in all that: cores ran others", p.lost) + "\n";
  }
  text += fmt::format(
      "engine efficiency {:.1f} %: {:.2f} images/s of {:.2f} that the kernels alone make possible\n"
      "{:.1f} % of the multiply-add peak ({:.2f} GFLOP an image)\n",
      100 * p.efficiency(), p.images_per_s(), p.kernel_images_per_s(), 100 * p.flop_share(),
      p.flops / images / 1e9);
  text += fmt::format(
      "most time above what the peaks allow ({:.1f} GF/s, {:.1f} GB/s copied an instance; bytes "
      "are the least possible):\n",
      p.peaks.flops / 1e9, p.peaks.bandwidth / 1e9);
  for (size_t i = 0; i < std::min(kWorstOps, p.ops.size()); ++i) {
    const ProfileRow& op = p.ops[i];
    text += fmt::format("  {:.3f} of {:.3f} ms/image: {} ({}, {})\n", 1e3 * op.excess() / images,
                        1e3 * op.seconds / images, op.name, op.kind, op.implementation);
  }
  return text;
}

nlohmann::ordered_json ProfileJson(const Profile& p) {
  using Json = nlohmann::ordered_json;
  const auto row = [&](const ProfileRow& r) {
    return Json{{"name", r.name},
                {"runs", r.runs},
                {"seconds", r.seconds},
                {"share", Ratio(r.seconds, p.whole)},
                {"gflops_per_s", Ratio(r.flops, r.seconds) / 1e9},
                {"gbytes_per_s", Ratio(r.bytes, r.seconds) / 1e9},
                {"least_seconds", r.least}};
  };
  Json parts = Json::object(), kinds = Json::array(), ops = Json::array();
  for (const Part& part : PartsOf(p)) parts[part.key] = part.seconds;
  for (const ProfileRow& r : p.kinds) kinds.push_back(row(r));
  for (const ProfileRow& r : p.ops) {
    Json op = row(r);
    op["kind"] = r.kind;
    op["implementation"] = r.implementation;
    ops.push_back(std::move(op));
  }
  return {{"mode", p.training ? "training" : "evaluation"},
          {"instances", p.instances},
          {"images", p.images},
          {"seconds", p.whole},
          {"parts", parts},
          {"lost_to_others", p.lost},
          {"reduction_share", Ratio(p.reduction, p.whole)},
          {"images_per_s", p.images_per_s()},
          {"kernel_images_per_s", p.kernel_images_per_s()},
          {"engine_efficiency", p.efficiency()},
          {"flop_share_of_peak", p.flop_share()},
          {"gflop_an_image", Ratio(p.flops, static_cast<double>(p.images)) / 1e9},
          {"peak_gflops_per_s", p.peaks.flops / 1e9},
          {"peak_gbytes_per_s", p.peaks.bandwidth / 1e9},
          {"kinds", kinds},
          {"ops", ops}};
}

}  // namespace parax
