#include "parax/engine/safetensors.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "parax/base/file.h"
#include "tests/engine/test_files.h"

namespace parax {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::string File(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

template <typename T>
std::string Bytes(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

Safetensors Parse(const std::string& file, const std::string& name = "w.safetensors") {
  return ParseSafetensors(std::as_bytes(std::span(file)), name);
}

std::string ParseError(const std::string& file, const std::string& name = "w.safetensors") {
  return ErrorOf([&] { Parse(file, name); });
}

std::string Object(std::string_view entries) { return fmt::format("{{{}}}", entries); }
std::string Entry(std::string_view name, std::string_view dtype, int count, size_t begin,
                  size_t end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name, dtype,
                     count, begin, end);
}
std::string Entry(std::string_view name, int begin, int end) {
  return Entry(name, "U8", end - begin, static_cast<size_t>(begin), static_cast<size_t>(end));
}

// One tensor "a" of the given type.
std::vector<float> Values(const std::string& dtype, int count, const std::string& data) {
  const std::string header = Object(Entry("a", dtype, count, 0, data.size()));
  return Parse(File(header, data)).tensors.at("a").values;
}

TEST(Safetensors, RoundTripKeepsBitsShapesAndMetadata) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  TensorMap tensors;
  tensors["b.weight"] = {{2, 3}, {1, -2, 0.1f, 1e-40f, -0.0f, nan}};
  tensors["scalar"] = {{}, {7}};
  tensors["empty"] = {{0, 4}, {}};
  const TemporaryFolder folder;
  const auto path = folder.path() / "w.safetensors";
  WriteSafetensors(path, tensors, {{"format", "pt"}});
  const Safetensors read = ReadSafetensors(path);
  ASSERT_EQ(read.tensors.size(), 3u);
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(read.tensors.at(name).dims, tensor.dims) << name;
    const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };  // NaN too
    EXPECT_TRUE(std::ranges::equal(read.tensors.at(name).values, tensor.values, {}, bits, bits))
        << name;
  }
  EXPECT_EQ(read.metadata, (Metadata{{"format", "pt"}}));
  const std::string bytes = ReadFile(path);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u) << "data must be aligned";
}

TEST(Safetensors, WriterRefusesShapeThatDoesNotFit) {
  EXPECT_THAT(ErrorOf([] { MakeSafetensors({{"x", {{2, 2}, {1, 2, 3}}}}); }), HasSubstr("\"x\""));
}

TEST(Safetensors, ConvertsEveryType) {
  EXPECT_THAT(Values("F32", 2, Bytes<float>({1.5f, -2})), ElementsAre(1.5f, -2));
  EXPECT_THAT(Values("F64", 2, Bytes<double>({0.1, -3})), ElementsAre(0.1f, -3));
  EXPECT_THAT(Values("BF16", 2, Bytes<uint16_t>({0x3fc0, 0xc000})), ElementsAre(1.5f, -2));
  // 1.5, the largest, the smallest subnormal, -0.333 rounded, infinity.
  EXPECT_THAT(Values("F16", 5, Bytes<uint16_t>({0x3e00, 0x7bff, 0x0001, 0xb555, 0x7c00})),
              ElementsAre(1.5f, 65504.0f, 0x1p-24f, -0.333251953125f,
                          std::numeric_limits<float>::infinity()));
  EXPECT_TRUE(std::isnan(Values("F16", 1, Bytes<uint16_t>({0x7e00}))[0]));
  EXPECT_THAT(Values("I64", 2, Bytes<int64_t>({-5, 1 << 24})), ElementsAre(-5, 0x1p24f));
  EXPECT_THAT(Values("I32", 1, Bytes<int32_t>({-7})), ElementsAre(-7));
  EXPECT_THAT(Values("U8", 2, Bytes<uint8_t>({0, 255})), ElementsAre(0, 255));
}

TEST(Safetensors, RefusesWhatFloatCannotHold) {
  for (const int64_t value : {int64_t{1} + (1 << 24), INT64_MAX, INT64_MIN + 1}) {
    EXPECT_THAT(ErrorOf([&] { Values("I64", 1, Bytes<int64_t>({value})); }),
                HasSubstr("\"a\" has I64 values"));
  }
  EXPECT_THAT(ErrorOf([] { Values("I32", 1, Bytes<int32_t>({INT32_MAX})); }), HasSubstr("I32"));
  EXPECT_THAT(ErrorOf([] { Values("F64", 1, Bytes<double>({1e300})); }), HasSubstr("F64"));
  // Except batch counts, which nobody computes with.
  const std::string header =
      R"({"bn1.num_batches_tracked":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})";
  EXPECT_EQ(Parse(File(header, Bytes<int64_t>({123456789}))).tensors.size(), 1u);
}

TEST(Safetensors, RefusesBrokenHeaders) {
  EXPECT_THAT(ParseError(""), HasSubstr("only 0 bytes"));
  EXPECT_THAT(ParseError("1234567"), HasSubstr("only 7 bytes"));
  EXPECT_THAT(ParseError(Bytes<uint64_t>({1000}) + "{}"), HasSubstr("cut short"));
  EXPECT_THAT(ParseError(Bytes<uint64_t>({UINT64_MAX}) + "{}"), HasSubstr("not a safetensors"));
  EXPECT_THAT(ParseError(Bytes<uint64_t>({100'000'001}) + "{}"), HasSubstr("not a safetensors"));
  EXPECT_THAT(ParseError(File("[]")), HasSubstr("not a safetensors"));
  EXPECT_THAT(ParseError(File("{\"a\"")), HasSubstr("not valid JSON"));
  EXPECT_THAT(ParseError(File("{\"a\xff\":1}")), HasSubstr("not valid JSON"));
  EXPECT_THAT(ParseError(File(Object(Entry("a", 0, 1) + "," + Entry("a", 0, 1)), "x")),
              HasSubstr("\"a\" appears twice"));
  EXPECT_THAT(ParseError(File(R"({"a":{"dtype":"U8","shape":[[[1]]],"data_offsets":[0,1]}})", "x")),
              HasSubstr("nested"));
  EXPECT_THAT(ParseError(File(std::string("{\"a\":") + std::string(100000, '['))),
              HasSubstr("nested"));
  EXPECT_THAT(ParseError(File(R"({"__metadata__":{"k":1}})")), HasSubstr("__metadata__"));
  EXPECT_THAT(ParseError(File(R"({"__metadata__":"k"})")), HasSubstr("__metadata__"));
}

TEST(Safetensors, RefusesBrokenEntries) {
  const auto entry = [](const std::string& body) {
    return ParseError(File(Object(R"("a":)" + body), std::string(8, 'x')));
  };
  for (const char* body : {
           "1",
           R"({"dtype":"U8","shape":[8]})",
           R"({"dtype":"U8","shape":[8],"data_offsets":[0,8],"more":1})",
           R"({"dtype":8,"shape":[8],"data_offsets":[0,8]})",
           R"({"dtype":"U8","shape":8,"data_offsets":[0,8]})",
           R"({"dtype":"U8","shape":[8],"data_offsets":[0,8,9]})",
           R"({"dtype":"U8","shape":[-8],"data_offsets":[0,8]})",
           R"({"dtype":"U8","shape":[8.0],"data_offsets":[0,8]})",
           R"({"dtype":"U8","shape":[8],"data_offsets":["0",8]})",
           R"({"dtype":"U8","shape":[7],"data_offsets":[0,8]})",
           R"({"dtype":"U8","shape":[8],"data_offsets":[8,0]})",
           R"({"dtype":"F32","shape":[8],"data_offsets":[0,8]})",
           // Products of 2^64 and more that wrap to the right size.
           R"({"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]})",
           R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]})",
           R"({"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]})",
           R"({"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]})",
       }) {
    EXPECT_THAT(entry(body), HasSubstr("w.safetensors: tensor \"a\"")) << body;
  }
  EXPECT_THAT(ParseError(File("{\"a\\n\":1}")), HasSubstr("\"a\\n\"")) << "names are escaped";
}

TEST(Safetensors, DataMustBeCoveredExactly) {
  const auto error = [](const std::string& entries) {
    return ParseError(File(Object(entries), std::string(8, 'x')));
  };
  EXPECT_EQ(error(Entry("b", 4, 8) + "," + Entry("a", 0, 4)), "");
  EXPECT_EQ(error(Entry("a", 0, 8) + "," + Entry("e", 8, 8) + "," + Entry("f", 0, 0)), "");
  EXPECT_THAT(error(Entry("a", 0, 5) + "," + Entry("b", 4, 8)), HasSubstr("\"b\" overlaps"));
  EXPECT_THAT(error(Entry("a", 0, 8) + "," + Entry("b", 0, 8)), HasSubstr("\"b\" overlaps"));
  EXPECT_THAT(error(Entry("a", 0, 3) + "," + Entry("b", 4, 8)), HasSubstr("\"b\" leaves a gap"));
  EXPECT_THAT(error(Entry("a", 1, 8)), HasSubstr("\"a\" leaves a gap"));
  EXPECT_THAT(error(Entry("a", 0, 7)), HasSubstr("1 bytes behind"));
  EXPECT_THAT(error(Entry("a", 0, 9)), HasSubstr("\"a\" needs 9 bytes of data, the file has 8"));
}

TEST(Safetensors, EveryTruncationIsAnError) {
  TensorMap tensors;
  tensors["a"] = {{2}, {1, 2}};
  tensors["b"] = {{1, 2}, {3, 4}};
  const SafetensorsImage image = MakeSafetensors(tensors);
  std::string file;
  for (const auto& piece : image.pieces()) {
    file.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  EXPECT_EQ(ParseError(file), "");
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(ParseError(file.substr(0, size)), "") << size;
  }
}

TEST(Safetensors, PickledFilesNameTheConverter) {
  const std::string zip = std::string("PK\x03\x04\x00\x00\x08\x08", 8) + std::string(100, 'z');
  const std::string old = "\x80\x02" + std::string(100, 'p');
  for (const std::string& error :
       {ParseError(zip, "resnet18.pth"), ParseError(old, "weights"), ParseError("", "m.bin")}) {
    EXPECT_THAT(error, HasSubstr("scripts/to-safetensors.py"));
  }
  EXPECT_THAT(ParseError(zip, "r.pth"), HasSubstr("r.pth is a pickled PyTorch file"));
}

TEST(SafetensorsGolden, ReadsPublishedFile) {
  const auto path = testing::SharedFile("cifar10-resnet20/resnet20.safetensors");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const Safetensors file = ReadSafetensors(path);
  EXPECT_EQ(file.metadata.at("arch"), "resnet20");
  EXPECT_EQ(file.tensors.at("layer3.0.conv1.weight").dims, (Dims{64, 32, 3, 3}));
}

}  // namespace
}  // namespace parax
