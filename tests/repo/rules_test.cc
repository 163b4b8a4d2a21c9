// The rules themselves, on files made to break them.
#include "tests/repo/rules.h"

#include <gtest/gtest.h>

namespace parax::repo {
namespace {

TEST(Rules, IncludeOrder) {
  const std::string engine = "#include \"parax/engine/plan.h\"\n";
  EXPECT_TRUE(IncludeOrder({"parax/engine/trainer.cc", engine}).empty());
  EXPECT_TRUE(IncludeOrder({"parax/cli/train.cc", engine}).empty());
  EXPECT_TRUE(IncludeOrder({"tests/base/any_test.cc", engine}).empty());
  const Findings findings = IncludeOrder({"parax/data/input.cc", "#pragma once\n" + engine});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0], "parax/data/input.cc:2: 'data' may not include parax/engine/plan.h");
  // Beside each other is not left of.
  EXPECT_EQ(IncludeOrder({"parax/sched/gate.h", "#include <parax/layers/layer.h>\n"}).size(), 1u);
  EXPECT_EQ(IncludeOrder({"parax/base/log.cc", "#include \"tests/base/fake.h\"\n"}).size(), 1u);
  EXPECT_EQ(IncludeOrder({"parax/extra/new.cc", ""}).size(), 1u);
}

TEST(Rules, PublicHeadersAreLight) {
  const std::string dnnl = "#include <dnnl.hpp>\n";
  EXPECT_EQ(PublicHeadersAreLight({"parax/layers/conv.h", dnnl}).size(), 1u);
  EXPECT_EQ(PublicHeadersAreLight({"parax/a/a.h", "#include <nlohmann/json.hpp>\n"}).size(), 1u);
  EXPECT_EQ(PublicHeadersAreLight({"parax/a/a.h", "#include \"parax/a/b_internal.h\"\n"}).size(),
            1u);
  EXPECT_TRUE(PublicHeadersAreLight({"parax/layers/conv.cc", dnnl}).empty());
  EXPECT_TRUE(PublicHeadersAreLight({"parax/layers/onednn_internal.h", dnnl}).empty());
  EXPECT_TRUE(PublicHeadersAreLight({"parax/a/a.h", "#include \"parax/numa/seat.h\"\n"}).empty());
}

TEST(Rules, Length) {
  std::string text;
  for (int i = 0; i < 350; ++i) text += "\n";
  EXPECT_TRUE(Length({"parax/a/a.cc", text}).empty());
  EXPECT_EQ(Length({"parax/a/a.cc", text + "\n"}).size(), 1u);
  EXPECT_TRUE(Length({"LICENSE", text + "\n"}).empty());
}

TEST(Rules, NoPlaces) {
  const std::string slash = "/";
  EXPECT_EQ(NoPlaces({"docs/a.md", "see " + slash + "home/me/x"}).size(), 1u);
  EXPECT_EQ(NoPlaces({"a.sh", "--index-url https://pypi." + std::string("org/simple")}).size(), 1u);
  EXPECT_TRUE(NoPlaces({"docs/a.md", "tests/work/x and ~/home/x"}).empty());
}

TEST(Rules, Finished) {
  const std::string mark = "TO";
  EXPECT_EQ(Finished({"parax/a/a.cc", "// " + mark + "DO: later\n"}).size(), 1u);
  EXPECT_EQ(Finished({"tests/a/a.cc", "EXPECT_TRUE(" + std::string("true);\n")}).size(), 1u);
  EXPECT_TRUE(Finished({"parax/a/a.cc", "// sums over tensors\n"}).empty());
}

TEST(Rules, PortableFlags) {
  EXPECT_EQ(PortableFlags({"cmake/A.cmake", "add_compile_options(-march=native)\n"}).size(), 1u);
  EXPECT_TRUE(PortableFlags({"cmake/A.cmake", "# No -march=native: one binary\n"}).empty());
}

}  // namespace
}  // namespace parax::repo
