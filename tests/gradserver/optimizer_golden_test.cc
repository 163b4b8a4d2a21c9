// Six trajectories of torch.optim in float64. The file names the tensors but not the settings:
// those below reproduce it to float32 rounding in a float64 replica.
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "parax/base/file.h"
#include "tests/gradserver/harness.h"

namespace parax::testing {
namespace {

class Tensors {
 public:
  explicit Tensors(const std::filesystem::path& path) : bytes_(ReadFile(path)) {
    uint64_t header = 0;
    std::memcpy(&header, bytes_.data(), 8);
    json_ = nlohmann::json::parse(bytes_.substr(8, header));
    data_ = 8 + header;
  }
  std::vector<float> operator[](const std::string& name) const {
    const auto& range = json_.at(name).at("data_offsets");
    const size_t first = range[0], last = range[1];
    std::vector<float> values((last - first) / 4);
    std::memcpy(values.data(), bytes_.data() + data_ + first, last - first);
    return values;
  }

 private:
  std::string bytes_;
  nlohmann::json json_;
  size_t data_ = 0;
};

std::filesystem::path GoldenFile() {
  const char* data = std::getenv("PARAX_DATA");
  const std::filesystem::path root =
      data ? data : std::filesystem::path(PARAX_SOURCE_DIR) / "../shared/data";
  return root / "pytorch-golden/optimizers_golden.safetensors";
}

struct Trajectory {
  const char* name;
  OptimizerOptions optimizer;
  double rate;
  double clip = 0;
  bool decay_b = true;
};

const Trajectory kTrajectories[] = {
    {"sgd", {.momentum = 0}, 0.1},
    {"sgd_momentum_wd", {.weight_decay = 0.05}, 0.1},
    {"sgd_nesterov_wd", {.nesterov = true, .weight_decay = 0.05}, 0.1},
    {"adam", {.kind = OptimizerKind::kAdam}, 0.01},
    {"adamw_nodecay_b",
     {.kind = OptimizerKind::kAdamW, .beta2 = 0.98, .epsilon = 1e-6, .weight_decay = 0.1},
     0.01,
     0,
     false},
    {"sgd_clip1", {}, 0.1, 1.0},
};

class OptimizerGolden : public ::testing::TestWithParam<std::tuple<int, UpdatePolicy>> {};
INSTANTIATE_TEST_SUITE_P(, OptimizerGolden,
                         ::testing::Combine(::testing::Range(0, 6),
                                            ::testing::Values(UpdatePolicy::kEager,
                                                              UpdatePolicy::kCommit)));

TEST_P(OptimizerGolden, FollowsTorch) {
  if (!std::filesystem::exists(GoldenFile())) GTEST_SKIP() << "no " << GoldenFile();
  const auto [index, policy] = GetParam();
  const Trajectory& trajectory = kTrajectories[index];
  if (trajectory.clip > 0 && policy == UpdatePolicy::kEager) return;  // a usage error
  const Tensors golden(GoldenFile());
  const std::string names[] = {"a", "b", "c"};
  ServerOptions options = Options({35, 5, 33}, 2);
  options.optimizer = trajectory.optimizer;
  options.policy = policy;
  options.clip_norm = trajectory.clip;
  options.parameters[1].decay = trajectory.decay_b;
  StopFlag stop;
  GradientServer server(options, stop);
  for (int p = 0; p < 3; ++p) {
    const std::vector<float> w0 = golden["w0." + names[p]];
    std::copy(w0.begin(), w0.end(), server.master(p).begin());
  }
  server.RefreshForms();
  for (uint64_t t = 1; t <= 6; ++t) {
    Job job{.first = t, .iterations = 1, .rate = trajectory.rate};
    std::vector<std::vector<float>> g;
    for (const std::string& name : names)
      g.push_back(golden[fmt::format("grad{}.{}", t - 1, name)]);
    // Two leaves of two samples: 1.5 and 2.5 times the gradient have it as their mean.
    job.samples = [](uint64_t, int) { return 2; };
    job.gradient = [&](uint64_t, int l, int p, size_t i) {
      return (l == 0 ? 1.5f : 2.5f) * g[p][i];
    };
    ExpectAllOk(RunLeaves(2, [&](int l) { return RunLeaf(server, options, job, l); }), stop);
    for (int p = 0; p < 3; ++p) {
      const std::vector<float> expected =
          golden[fmt::format("{}.w{}.{}", trajectory.name, t, names[p])];
      double error = 0, size = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        error += std::pow(double{server.master(p)[i]} - expected[i], 2);
        size += std::pow(double{expected[i]}, 2);
      }
      EXPECT_LE(std::sqrt(error / size), 1e-6) << trajectory.name << " " << names[p] << " " << t;
    }
    if (trajectory.clip > 0) {
      const double norm = golden[fmt::format("sgd_clip1.norm{}", t - 1)][0];
      EXPECT_NEAR(server.record(t).gradient_norm, norm, 1e-6 * norm);
      EXPECT_NEAR(server.record(t).clip_factor, trajectory.clip / norm, 1e-6);
    }
  }
}

}  // namespace
}  // namespace parax::testing
