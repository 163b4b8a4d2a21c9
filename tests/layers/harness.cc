#include "tests/layers/harness.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <numeric>

#include "parax/base/error.h"

namespace parax::testing {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xA5};

// oneDNN kernels must be created and run on threads with the same OpenMP thread count.
template <typename Function>
auto OnThread(int threads, Function function) {
  return std::async(std::launch::async,
                    [&] {
                      omp_set_num_threads(threads);
                      return function();
                    })
      .get();
}

// Where each logical index of a layout lies, in row-major order. Kept, because Jacobians ask again
// and again; the stored Layout keeps its descriptor's address from being reused.
const std::vector<size_t>& Offsets(const Layout& layout) {
  static std::map<const dnnl_memory_desc*, std::pair<Layout, std::vector<size_t>>> known;
  if (known.size() > 100) known.clear();
  auto& [kept, offsets] = known[layout.get()];
  if (!kept.empty()) return offsets;
  kept = layout;
  const Dims dims = layout.dims();
  Dims index(dims.size(), 0);
  offsets.resize(static_cast<size_t>(Product(dims)));
  for (size_t& offset : offsets) {
    offset = layout.Offset(index);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
  return offsets;
}

size_t Count(const Dims& dims) { return static_cast<size_t>(Product(dims)); }

}  // namespace

std::vector<float> Pack(const Layout& layout, const Values& values) {
  std::vector<float> memory(layout.elements(), 0.0f);
  const std::vector<size_t>& offsets = Offsets(layout);
  for (size_t i = 0; i < offsets.size(); ++i) memory[offsets[i]] = values.at(i);
  return memory;
}

std::vector<std::byte> PackBytes(const Layout& layout, const Values& values) {
  const std::vector<float> packed = Pack(layout, values);
  return WithElement(layout.dtype(), [&]<typename T>(T) {
    std::vector<T> typed;
    for (const float value : packed) typed.push_back(T(value));
    const auto bytes = std::as_bytes(std::span(typed));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  });
}

Values Unpack(const Layout& layout, const void* memory) {
  return WithElement(layout.dtype(), [&]<typename T>(T) {
    Values values;
    for (const size_t offset : Offsets(layout)) {
      values.push_back(static_cast<float>(static_cast<const T*>(memory)[offset]));
    }
    return values;
  });
}

Values Rounded(Values values) {
  for (float& value : values) value = static_cast<float>(BFloat16(value));
  return values;
}

struct LayerRun::Buffer {
  explicit Buffer(size_t size)
      : bytes(size), memory(new (std::align_val_t{64}) std::byte[size + 64]) {
    FillNan();
    std::fill_n(memory.get() + bytes, kGuardBytes, kGuard);
  }
  void FillNan() { std::memset(memory.get(), 0xFF, bytes); }
  float* floats() const { return reinterpret_cast<float*>(memory.get()); }

  struct Free {
    void operator()(std::byte* p) const { operator delete[](p, std::align_val_t{64}); }
  };
  size_t bytes;
  std::unique_ptr<std::byte[], Free> memory;
};

LayerRun::~LayerRun() = default;

LayerRun::LayerRun(LayerPtr layer, CompileRequest request, bool in_place)
    : layer_(std::move(layer)), request_(std::move(request)) {
  compiled_ = OnThread(request_.threads, [&] { return layer_->Compile(request_); });

  std::vector<Dims> input_dims;
  for (size_t i = 0; i < request_.inputs.size(); ++i) {
    input_dims.push_back(request_.inputs[i].dims());
    inputs.push_back(RandomValues(Count(input_dims[i]), 100 + i));
  }
  const std::vector<ParamSpec> param_specs = layer_->Params();
  for (size_t i = 0; i < param_specs.size(); ++i) {
    params.push_back(RandomValues(Count(param_specs[i].dims), 200 + i));
  }
  for (const StateSpec& state : layer_->States()) {
    states.emplace_back(Count(state.dims), state.initial);
  }
  output_grad = RandomValues(Count(layer_->OutputDims(input_dims)), 300);
  const auto images = static_cast<size_t>(input_dims[0][0]);
  labels.assign(images, 0);
  targets = RandomValues(Count(input_dims[0]), 400, 0, 1);
  sample_ids.resize(images);
  std::iota(sample_ids.begin(), sample_ids.end(), int64_t{0});
  context.seed = 1;
  context.iteration = 1;

  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    const size_t bytes = compiled_.inputs.at(static_cast<size_t>(i)).bytes();
    Allocate(Role::kInput, i, bytes);
    Allocate(Role::kInputGrad, i, bytes);
  }
  Allocate(Role::kOutput, 0, compiled_.output.bytes());
  Allocate(Role::kOutputGrad, 0, compiled_.output.bytes());
  for (int i = 0; i < static_cast<int>(params.size()); ++i) {
    if (compiled_.grads.empty()) break;
    Allocate(Role::kParamGrad, i, compiled_.grads.at(static_cast<size_t>(i)).bytes());
  }
  for (int i = 0; i < static_cast<int>(compiled_.forms.size()); ++i) {
    Allocate(Role::kParamForm, i, compiled_.forms[static_cast<size_t>(i)].layout.bytes());
  }
  for (int i = 0; i < static_cast<int>(states.size()); ++i) {
    Allocate(Role::kState, i, states[static_cast<size_t>(i)].size() * sizeof(float));
  }
  for (int i = 0; i < static_cast<int>(compiled_.saved.size()); ++i) {
    Allocate(Role::kSaved, i, compiled_.saved[static_cast<size_t>(i)]);
  }
  for (int i = 0; i < static_cast<int>(compiled_.temps.size()); ++i) {
    Allocate(Role::kTemp, i, compiled_.temps[static_cast<size_t>(i)]);
  }
  size_t scratch = 0;
  for (const auto* ops : {&compiled_.forward, &compiled_.backward}) {
    for (const CompiledOp& op : *ops) scratch = std::max(scratch, op.kernel->scratch_bytes());
  }
  Allocate(Role::kScratch, 0, scratch);
  Allocate(Role::kLabels, 0, labels.size() * sizeof(int32_t));
  Allocate(Role::kTargets, 0, targets.size() * sizeof(float));
  Allocate(Role::kLoss, 0, sizeof(LossResult));

  if (compiled_.output_is_input) Share(Role::kOutput, 0, Role::kInput, 0);
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    if (compiled_.grads_alias_output_grad || compiled_.output_is_input) {
      Share(Role::kInputGrad, i, Role::kOutputGrad, 0);
    } else if (compiled_.input_grads_equal) {
      const auto first =
          std::find(request_.need_input_grad.begin(), request_.need_input_grad.end(), true);
      const auto from = static_cast<int>(first - request_.need_input_grad.begin());
      if (i > from) Share(Role::kInputGrad, i, Role::kInputGrad, from);
    }
  }
  OnThread(request_.threads, [&] { BindAll(in_place); });
}

void LayerRun::Allocate(Role role, int index, size_t bytes) {
  buffers_[{role, index}] = std::make_shared<Buffer>(bytes);
}

void LayerRun::Share(Role role, int index, Role with, int with_index) {
  const std::shared_ptr<Buffer> before = buffers_.at({role, index});
  for (auto& [key, buffer] : buffers_) {  // whatever shared the old one goes along
    if (buffer == before) buffer = buffers_.at({with, with_index});
  }
}

LayerRun::Buffer& LayerRun::Find(Role role, int index) const {
  const auto found = buffers_.find({role, index});
  if (found == buffers_.end()) {
    Fail("{}: an op names argument {} of role {}, which the layer does not have", layer_->kind(),
         index, static_cast<int>(role));
  }
  return *found->second;
}

bool LayerRun::ReadAfter(const Argument& argument, const CompiledOp& op) const {
  bool after = false;
  for (const auto* ops : {&compiled_.forward, &compiled_.backward}) {
    for (const CompiledOp& other : *ops) {
      for (const Argument& a : other.arguments) {
        if (after && a.role == argument.role && a.index == argument.index) return true;
      }
      after = after || &other == &op;
    }
  }
  return false;
}

void LayerRun::BindAll(bool in_place) {
  for (const auto& [ops, bound] :
       {std::pair{&compiled_.forward, &forward_}, std::pair{&compiled_.backward, &backward_}}) {
    for (const CompiledOp& op : *ops) {
      if (in_place && op.in_place_from >= 0) {
        const Argument& from = op.arguments.at(static_cast<size_t>(op.in_place_from));
        const Argument& to = op.arguments.at(static_cast<size_t>(op.in_place_to));
        EXPECT_TRUE(to.write && !from.write) << layer_->kind() << ": in-place arguments swapped";
        if (!ReadAfter(from, op)) Share(to.role, to.index, from.role, from.index);
      }
      std::vector<void*> addresses;
      for (const Argument& a : op.arguments) {
        addresses.push_back(Find(a.role, a.index).memory.get());
      }
      bound->push_back(op.kernel->Bind(addresses));
    }
  }
}

Outcome LayerRun::RunAll(std::vector<std::unique_ptr<BoundKernel>>& kernels) {
  context.sample_ids = sample_ids.data();
  return OnThread(request_.threads, [&] {
    for (auto& kernel : kernels) {
      if (const Outcome outcome = kernel->Run(context); outcome != Outcome::kOk) return outcome;
    }
    return Outcome::kOk;
  });
}

Outcome LayerRun::Forward() {
  const auto put = [&](Role role, int index, const auto& values) {
    Buffer& buffer = Find(role, index);
    if (values.size() * sizeof(values[0]) != buffer.bytes) Fail("wrong size in the test");
    std::memcpy(buffer.memory.get(), values.data(), buffer.bytes);
  };
  for (auto& [key, buffer] : buffers_) buffer->FillNan();
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    const auto at = static_cast<size_t>(i);
    put(Role::kInput, i, PackBytes(compiled_.inputs[at], inputs[at]));
  }
  for (int i = 0; i < static_cast<int>(compiled_.forms.size()); ++i) {
    const ParamFormSpec& form = compiled_.forms[static_cast<size_t>(i)];
    put(Role::kParamForm, i, PackBytes(form.layout, params.at(static_cast<size_t>(form.param))));
  }
  for (int i = 0; i < static_cast<int>(states.size()); ++i) {
    put(Role::kState, i, states[static_cast<size_t>(i)]);
  }
  put(Role::kLabels, 0, labels);
  put(Role::kTargets, 0, targets);
  const Outcome outcome = RunAll(forward_);
  std::memcpy(&loss_, Find(Role::kLoss, 0).memory.get(), sizeof(loss_));
  CheckMemory();
  if (outcome == Outcome::kOk) CheckPadding(compiled_.output, Role::kOutput, 0);
  return outcome;
}

Outcome LayerRun::Backward() {
  const std::vector<std::byte> packed = PackBytes(compiled_.output, output_grad);
  std::memcpy(Find(Role::kOutputGrad, 0).memory.get(), packed.data(), packed.size());
  const Outcome outcome = RunAll(backward_);
  CheckMemory();
  if (outcome != Outcome::kOk) return outcome;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!request_.need_input_grad[i]) continue;
    CheckPadding(compiled_.inputs[i], Role::kInputGrad, static_cast<int>(i));
  }
  if (!request_.need_param_grad) return outcome;
  for (size_t i = 0; i < compiled_.grads.size(); ++i) {
    CheckPadding(compiled_.grads[i], Role::kParamGrad, static_cast<int>(i));
  }
  return outcome;
}

void LayerRun::CheckMemory() const {
  for (const auto& [key, buffer] : buffers_) {
    const std::byte* guard = buffer->memory.get() + buffer->bytes;
    EXPECT_TRUE(std::all_of(guard, guard + kGuardBytes, [](std::byte b) { return b == kGuard; }))
        << layer_->kind() << " wrote behind buffer " << key.second << " of role "
        << static_cast<int>(key.first);
  }
}

void LayerRun::CheckPadding(const Layout& layout, Role role, int index) const {
  if (!layout.padded()) return;
  const std::byte* memory = Find(role, index).memory.get();
  std::vector<bool> logical(layout.elements(), false);
  for (const size_t offset : Offsets(layout)) logical[offset] = true;
  for (size_t i = 0; i < logical.size(); ++i) {
    const float value = WithElement(layout.dtype(), [&]<typename T>(T) {
      return static_cast<float>(reinterpret_cast<const T*>(memory)[i]);
    });
    if (logical[i] || value == 0) continue;
    ADD_FAILURE() << layer_->kind() << ": padding of role " << static_cast<int>(role) << " index "
                  << index << " holds " << value << " in " << layout.ToString();
    return;
  }
}

Values LayerRun::output() const {
  return Unpack(compiled_.output, Find(Role::kOutput, 0).memory.get());
}
Values LayerRun::input_grad(int input) const {
  return Unpack(compiled_.inputs.at(static_cast<size_t>(input)),
                Find(Role::kInputGrad, input).memory.get());
}
Values LayerRun::param_grad(int param) const {
  return Unpack(compiled_.grads.at(static_cast<size_t>(param)),
                Find(Role::kParamGrad, param).memory.get());
}
Values LayerRun::saved(int index) const {
  const Buffer& buffer = Find(Role::kSaved, index);
  return Values(buffer.floats(), buffer.floats() + buffer.bytes / sizeof(float));
}

}  // namespace parax::testing
