#include <gtest/gtest.h>
#include <omp.h>
#include <xmmintrin.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <ctime>
#include <map>
#include <set>
#include <thread>

#include "tests/layers/harness.h"

// What instances rely on: compiled kernels are shared, and subnormal numbers are not slow.
namespace parax::testing {
namespace {

// Buffers of one instance of a compiled layer, bound as a plan would bind them.
class Instance {
 public:
  Instance(const CompiledLayer& layer, uint64_t number) {
    for (const auto* ops : {&layer.forward, &layer.backward}) {
      for (const CompiledOp& op : *ops) {
        std::vector<void*> addresses;
        for (const Argument& a : op.arguments) {
          std::vector<float>& buffer = buffers_[{a.role, a.index}];
          // Values of inputs in memory order: any will do, padding must be zero.
          const size_t bytes = Bytes(layer, op, a);
          if (buffer.size() * sizeof(float) < bytes) buffer.resize((bytes + 3) / 4);
          if (!a.write && a.role != Role::kSaved) {
            const Layout layout = LayoutOf(layer, a);
            buffer = layout.empty()
                         ? RandomValues(bytes / 4, number, 0.5, 1)
                         : Pack(layout, RandomValues(static_cast<size_t>(Product(layout.dims())),
                                                     number + 10 * static_cast<uint64_t>(a.role)));
          }
        }
      }
    }
    for (const auto* ops : {&layer.forward, &layer.backward}) {
      for (const CompiledOp& op : *ops) {
        std::vector<void*> addresses;
        for (const Argument& a : op.arguments)
          addresses.push_back(buffers_.at({a.role, a.index}).data());
        kernels_.push_back(op.kernel->Bind(addresses));
        for (const Argument& a : op.arguments)
          if (a.write && a.role != Role::kScratch) results_.insert({a.role, a.index});
      }
    }
  }

  bool Run() {
    return std::all_of(kernels_.begin(), kernels_.end(),
                       [](const auto& kernel) { return kernel->Run({}) == Outcome::kOk; });
  }

  std::vector<Values> Results() const {
    std::vector<Values> all;
    for (const auto& key : results_) all.push_back(buffers_.at(key));
    return all;
  }

  void Fill(Role role, float value) {  // every index
    for (auto& [key, buffer] : buffers_)
      if (key.first == role) std::fill(buffer.begin(), buffer.end(), value);
  }
  const Values& buffer(Role role) const { return buffers_.at({role, 0}); }

 private:
  using Key = std::pair<Role, int>;

  static Layout LayoutOf(const CompiledLayer& layer, const Argument& a) {
    const auto at = static_cast<size_t>(a.index);
    switch (a.role) {
      case Role::kInput:
      case Role::kInputGrad:
        return layer.inputs[at];
      case Role::kOutput:
      case Role::kOutputGrad:
        return layer.output;
      case Role::kParamForm:
        return layer.forms[at].layout;
      case Role::kParamGrad:
        return layer.grads[at];
      default:
        return {};
    }
  }

  static size_t Bytes(const CompiledLayer& layer, const CompiledOp& op, const Argument& a) {
    const auto at = static_cast<size_t>(a.index);
    if (a.role == Role::kSaved) return layer.saved[at];
    if (a.role == Role::kTemp) return layer.temps[at];
    if (a.role == Role::kScratch) return op.kernel->scratch_bytes();
    return LayoutOf(layer, a).bytes();
  }

  std::map<Key, std::vector<float>> buffers_;
  std::set<Key> results_;
  std::vector<std::unique_ptr<BoundKernel>> kernels_;
};

struct Subject {
  LayerPtr layer;
  std::vector<Dims> inputs;
};

std::vector<Subject> Subjects() {
  return {
      {Conv({.in_channels = 16, .out_channels = 32, .kernel = 3, .padding = 1}), {{4, 16, 14, 14}}},
      {Conv({.in_channels = 3, .out_channels = 20, .kernel = 3, .stride = 2}), {{4, 3, 15, 13}}},
      {Conv({.in_channels = 32, .out_channels = 64, .kernel = 1, .stride = 2}), {{4, 32, 14, 14}}},
      {BatchNorm({.channels = 32, .relu = true}), {{4, 32, 14, 14}}},
      {MaxPool({.kernel = 3, .stride = 2, .padding = 1}), {{4, 16, 15, 15}}},
      {AvgPool({.kernel = 2, .stride = 2}), {{4, 16, 14, 14}}},
      {GlobalAvgPool(), {{4, 32, 7, 7}}},
      {Linear(64, 10), {{16, 64}}},
      {Add(true), {{4, 16, 14, 14}, {4, 16, 14, 14}}},
  };
}

// Every implementation that can be forced, one op at a time; the layer's own choice first.
std::vector<CompiledLayer> Variants(const Subject& subject, bool blocked) {
  CompileRequest request = Request(subject.inputs, Mode::kTraining, blocked);
  std::vector<CompiledLayer> all = {subject.layer->Compile(request)};
  const size_t ops = all[0].forward.size() + all[0].backward.size();
  for (size_t op = 0; op < ops; ++op) {
    request.implementations.clear();
    for (const std::string& name : subject.layer->Candidates(request, static_cast<int>(op))) {
      request.implementations.assign(ops, "");
      request.implementations[op] = name;
      all.push_back(subject.layer->Compile(request));
    }
  }
  return all;
}

std::string Names(const CompiledLayer& layer) {
  std::string names;
  for (const auto* ops : {&layer.forward, &layer.backward})
    for (const CompiledOp& op : *ops) names += " " + op.kernel->implementation();
  return names;
}

// Case H: scratch memory and everything else that changes belongs to the instance.
TEST(Sharing, FourThreadsRunOneKernelAtOnceWithTheBitsOfOneAfterTheOther) {
  omp_set_num_threads(1);
  constexpr int kThreads = 4, kRounds = 4;
  for (const Subject& subject : Subjects()) {
    for (const bool blocked : {false, true}) {
      for (const CompiledLayer& layer : Variants(subject, blocked)) {
        SCOPED_TRACE(subject.layer->kind() + Names(layer));
        std::vector<Instance> alone, together;
        for (uint64_t i = 0; i < kThreads; ++i) {
          alone.emplace_back(layer, i);
          together.emplace_back(layer, i);
          ASSERT_TRUE(alone.back().Run());
        }
        std::barrier<> start(kThreads);
        std::vector<std::thread> threads;
        for (Instance& instance : together) {
          threads.emplace_back([&] {
            omp_set_num_threads(1);
            start.arrive_and_wait();
            for (int round = 0; round < kRounds; ++round)
              if (!instance.Run()) std::abort();
          });
        }
        for (std::thread& thread : threads) thread.join();
        for (size_t i = 0; i < kThreads; ++i) {
          const std::vector<Values> expected = alone[i].Results(), actual = together[i].Results();
          for (size_t r = 0; r < expected.size(); ++r)
            ASSERT_EQ(std::memcmp(actual[r].data(), expected[r].data(),
                                  expected[r].size() * sizeof(float)),
                      0)
                << "instance " << i << ", result " << r;
        }
      }
    }
  }
}

// Processor time: what other programs on the machine take does not count.
double SecondsOf(Instance& instance) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(instance.Run());
  return now() - start;
}

// Case G, the layers' half: under the flush-to-zero mode that worker threads set, subnormal
// weights and activations count as zero in every kernel, and cost no time.
TEST(Sharing, SubnormalNumbersAreFlushedAndNotSlow) {
  omp_set_num_threads(1);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // flush to zero, denormals are zero
  for (const Subject& subject : Subjects()) {
    const CompiledLayer layer = subject.layer->Compile(Request(subject.inputs));
    SCOPED_TRACE(subject.layer->kind() + Names(layer));
    // One instance for both: where its buffers lie in the cache must not make the difference.
    Instance tiny(layer, 1);
    double fastest_normal = 1e9, fastest_tiny = 1e9;
    for (int i = 0; i < 20; ++i) fastest_normal = std::min(fastest_normal, SecondsOf(tiny));
    tiny.Fill(Role::kInput, 1e-39f);
    tiny.Fill(layer.forms.empty() ? Role::kOutputGrad : Role::kParamForm, 1e-39f);
    // The best of many rounds; a kernel that is really slow on subnormals never gets there.
    for (int i = 0; i < 10 || (i < 1000 && fastest_tiny > 1.5 * fastest_normal); ++i) {
      fastest_tiny = std::min(fastest_tiny, SecondsOf(tiny));
    }
    EXPECT_LE(fastest_tiny, 1.5 * fastest_normal);
    const std::string kind = subject.layer->kind();
    if (kind == "conv" || kind == "linear") {
      for (const float dx : tiny.buffer(Role::kInputGrad)) ASSERT_EQ(dx, 0.0f);
      for (const float dw : tiny.buffer(Role::kParamGrad)) ASSERT_EQ(dw, 0.0f);
    }
  }
  _mm_setcsr(before);
}

}  // namespace
}  // namespace parax::testing
