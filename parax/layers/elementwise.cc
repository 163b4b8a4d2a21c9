#include "parax/layers/elementwise.h"

#include <cstring>

#include "parax/layers/own_kernel.h"

namespace parax {
namespace {

constexpr size_t kUnit =
    1024;  // elements or bytes; pieces of different threads share no cache line

PARAX_INLINE inline float Max0(float v) { return v < 0 ? 0.0f : v; }  // NaN < 0 is false

struct Sum {
  PARAX_INLINE float operator()(float a, float b) const { return a + b; }
};
struct SumRelu {
  PARAX_INLINE float operator()(float a, float b) const { return Max0(a + b); }
};
struct Relu1 {
  PARAX_INLINE float operator()(float v) const { return Max0(v); }
};
struct Same {
  PARAX_INLINE float operator()(float v) const { return v; }
};
struct Masked {
  PARAX_INLINE float operator()(float y, float dy) const { return y <= 0 ? 0.0f : dy; }
};

// dst[i] = op(sources[i]...). dst may equal a source, which ivdep tells the compiler is harmless.
template <typename Op, typename T, typename... Sources>
void Map(Isa isa, int threads, size_t elements, Op op, T* dst, Sources... sources) {
  ForPieces(threads, elements, kUnit, [=](size_t begin, size_t end) {
    RunAtIsa(isa, [=]() PARAX_INLINE {
#pragma GCC ivdep
      for (size_t i = begin; i < end; ++i) dst[i] = T(op(float(sources[i])...));
    });
  });
}

// dst, a and, of binary ops, b.
template <size_t kArguments, typename Op>
std::shared_ptr<const Kernel> MakeMap(const char* name, const Elements& elements, int threads,
                                      Op op) {
  const auto run = [=, isa = CurrentIsa()](const Addresses<kArguments>& at, const RunContext&) {
    WithElement(elements.type, [&]<typename T>(T) {
      if constexpr (kArguments == 2) {
        Map(isa, threads, elements.count, op, As<T>(at[0]), As<T>(at[1]));
      } else {
        Map(isa, threads, elements.count, op, As<T>(at[0]), As<T>(at[1]), As<T>(at[2]));
      }
    });
    return Outcome::kOk;
  };
  return MakeOwnKernel<kArguments>(name, run);
}

}  // namespace

std::shared_ptr<const Kernel> MakeAccumulate(size_t elements, int threads) {
  return MakeOwnKernel<2>(
      "parax:accumulate", [=, isa = CurrentIsa()](const Addresses<2>& at, const RunContext&) {
        Map(isa, threads, elements, Sum(), Floats(at[0]), Floats(at[0]), Floats(at[1]));
        return Outcome::kOk;
      });
}

std::shared_ptr<const Kernel> MakeAddInto(const Elements& elements, int threads) {
  return MakeMap<3>("parax:add", elements, threads, Sum());
}

std::shared_ptr<const Kernel> MakeAddRelu(const Elements& elements, int threads) {
  return MakeMap<3>("parax:add_relu", elements, threads, SumRelu());
}

std::shared_ptr<const Kernel> MakeReluBackward(const Elements& elements, int threads) {
  return MakeMap<3>("parax:relu_backward", elements, threads, Masked());
}

std::shared_ptr<const Kernel> MakeRelu(const Elements& elements, int threads) {
  return MakeMap<2>("parax:relu", elements, threads, Relu1());
}

void Convert(const float* from, BFloat16* to, size_t elements, int threads) {
  Map(CurrentIsa(), threads, elements, Same(), to, from);
}

void Convert(const BFloat16* from, float* to, size_t elements, int threads) {
  Map(CurrentIsa(), threads, elements, Same(), to, from);
}

std::shared_ptr<const Kernel> MakeZero(size_t bytes, int threads) {
  return MakeOwnKernel<1>("parax:zero", [=](const Addresses<1>& at, const RunContext&) {
    auto* dst = static_cast<std::byte*>(at[0]);
    ForPieces(threads, bytes, kUnit,
              [=](size_t begin, size_t end) { std::memset(dst + begin, 0, end - begin); });
    return Outcome::kOk;
  });
}

std::shared_ptr<const Kernel> MakeCopy(size_t bytes, int threads) {
  return MakeOwnKernel<2>("parax:copy", [=](const Addresses<2>& at, const RunContext&) {
    auto* dst = static_cast<std::byte*>(at[0]);
    const auto* src = static_cast<const std::byte*>(at[1]);
    ForPieces(threads, bytes, kUnit, [=](size_t begin, size_t end) {
      std::memcpy(dst + begin, src + begin, end - begin);
    });
    return Outcome::kOk;
  });
}

}  // namespace parax
