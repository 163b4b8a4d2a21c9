#include "parax/layers/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/layers/harness.h"

namespace parax::testing {
namespace {

const size_t kSizes[] = {1, 15, 1024, 5000, 70001};

void RunKernel(const Kernel& kernel, std::vector<void*> arguments) {
  ASSERT_EQ(kernel.Bind(arguments)->Run(RunContext{}), Outcome::kOk);
}

TEST(Elementwise, AccumulateAndAddInto) {
  for (const size_t n : kSizes) {
    for (const int threads : {1, 3}) {
      const Values a = RandomValues(n, 1), b = RandomValues(n, 2);
      Values sum(n), source = b, left = a, into(n, -7.0f), in_place = a;
      for (size_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
      RunKernel(*MakeAccumulate(n, threads), {left.data(), source.data()});
      ExpectSameBits(left, sum, "accumulate");
      left = a;
      RunKernel(*MakeAddInto({n}, threads), {into.data(), left.data(), source.data()});
      ExpectSameBits(into, sum, "add into");
      RunKernel(*MakeAddInto({n}, threads), {in_place.data(), in_place.data(), source.data()});
      ExpectSameBits(in_place, sum, "add into, in place");
      ExpectSameBits(source, b, "source");
    }
  }
}

TEST(Elementwise, ZeroAndCopyTouchTheirBytesOnly) {
  for (const size_t bytes : kSizes) {
    for (const int threads : {1, 3}) {
      std::vector<unsigned char> from(bytes), to(bytes + 1, 0xEE);
      for (size_t i = 0; i < bytes; ++i) from[i] = static_cast<unsigned char>(i * 7);
      RunKernel(*MakeCopy(bytes, threads), {to.data(), from.data()});
      EXPECT_EQ(std::memcmp(to.data(), from.data(), bytes), 0);
      EXPECT_EQ(to[bytes], 0xEE);
      RunKernel(*MakeZero(bytes, threads), {to.data()});
      EXPECT_EQ(std::count(to.begin(), to.end() - 1, 0), static_cast<std::ptrdiff_t>(bytes));
      EXPECT_EQ(to[bytes], 0xEE);
    }
  }
}

TEST(Elementwise, RefusesWrongNumberOfArguments) {
  float x = 0;
  void* one[] = {&x};
  EXPECT_ANY_THROW((void)MakeAccumulate(1)->Bind(one));
}

}  // namespace
}  // namespace parax::testing
