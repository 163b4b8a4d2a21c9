#include "parax/cli/npy.h"

#include <gtest/gtest.h>

#include "parax/base/file.h"
#include "tests/engine/test_files.h"

namespace parax {
namespace {

using testing::ErrorOf;
using testing::TemporaryFolder;

// A file as NumPy writes it, with any header text.
std::string Npy(const std::string& dict, size_t floats, int major = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(major);
  file += '\0';
  const auto length = static_cast<uint32_t>(dict.size());
  file.append(reinterpret_cast<const char*>(&length), major == 1 ? 2 : 4);
  file += dict;
  for (size_t i = 0; i < floats; ++i) {
    const auto value = static_cast<float>(i) + 0.5f;
    file.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return file;
}
std::string Header(const std::string& shape, const std::string& descr = "<f4",
                   const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape +
         ", }          \n";
}
NpyArray Parse(const std::string& file) {
  // A copy without room behind it: sanitizers see a read beyond the end.
  const std::vector<char> exact(file.begin(), file.end());
  return ParseNpy(std::as_bytes(std::span(exact)), "x.npy");
}
std::string ErrorOfParsing(const std::string& file) {
  return ErrorOf([&] { Parse(file); });
}

TEST(NpyTest, ReadsEachFormat) {
  for (const int major : {1, 2, 3}) {
    const NpyArray array = Parse(Npy(Header("(2, 3)"), 6, major));
    EXPECT_EQ(array.shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(array.values, (std::vector<float>{.5, 1.5, 2.5, 3.5, 4.5, 5.5}));
  }
  EXPECT_EQ(ErrorOfParsing(Npy(Header("(1,)"), 1, 4)), "x.npy: .npy format 4 is not known");
  EXPECT_NE(ErrorOfParsing(Npy(Header("(1,)"), 1, 0)), "");
}

TEST(NpyTest, ReadsEachShape) {
  EXPECT_EQ(Parse(Npy(Header("()"), 1)).shape, std::vector<int64_t>{});
  EXPECT_EQ(Parse(Npy(Header("(3,)"), 3)).shape, std::vector<int64_t>{3});
  EXPECT_EQ(Parse(Npy(Header("(0, 5)"), 0)).shape, (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(Parse(Npy(Header("(1, 2, 1, 1, 1, 1, 1, 1)"), 2)).shape.size(), 8u);
}

TEST(NpyTest, WritesWhatItReads) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.npy";
  const std::vector<float> values{1, -2, 3.25f, 1e-40f, 0, 6};
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{6}, {2, 3}, {1, 3, 2, 1}, {3, 2, 1, 1, 1, 1, 1, 1}}) {
    WriteNpy(path, shape, values);
    const std::string file = ReadFile(path);
    const NpyArray array = Parse(file);
    EXPECT_EQ(array.shape, shape);
    EXPECT_EQ(array.values, values);
    // NumPy asks for data at a multiple of 64 bytes, behind a newline.
    EXPECT_EQ((file.size() - sizeof(float) * values.size()) % 64, 0u);
    EXPECT_EQ(file[file.size() - sizeof(float) * values.size() - 1], '\n');
  }
}

TEST(NpyTest, WritesTheBytesThatNumPyWrites) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.npy";
  WriteNpy(path, {1}, std::vector<float>{0.5f});
  std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
  dict.resize(117, ' ');
  EXPECT_EQ(ReadFile(path), Npy(dict + "\n", 1));
}

TEST(NpyTest, RefusesAFileCutAtAnyByte) {
  const std::string file = Npy(Header("(2, 3)"), 6);
  ASSERT_EQ(ErrorOfParsing(file), "");
  for (size_t size = 0; size < file.size(); ++size) {
    const std::string error = ErrorOfParsing(file.substr(0, size));
    ASSERT_NE(error, "") << "cut at byte " << size;
    ASSERT_NE(error.find("x.npy"), std::string::npos);
  }
}

TEST(NpyTest, NeverReadsBeyondAFileWithOneByteChanged) {
  const std::string file = Npy(Header("(2, 3)"), 6);
  for (size_t i = 0; i < file.size() - 24; ++i) {
    for (const char c : {'\0', '\xff', '9', ' ', ')', '(', '\''}) {
      std::string changed = file;
      changed[i] = c;
      try {
        EXPECT_EQ(Parse(changed).values.size(), 6u);
      } catch (const Error&) {
      }
    }
  }
}

TEST(NpyTest, RefusesAShapeThatIsNotTheFiles) {
  EXPECT_NE(ErrorOfParsing(Npy(Header("(2, 2)"), 6)), "");
  EXPECT_NE(ErrorOfParsing(Npy(Header("(0, 3)"), 6)), "");
  EXPECT_NE(ErrorOfParsing(Npy(Header("(2, 4)"), 6)), "");
  // Products that are 6 or 0 in 64 bits, and numbers that are none.
  for (const char* shape :
       {"(4294967296, 4294967296, 6)", "(9223372036854775807, 2)", "(2, 3, 4611686018427387905, 4)",
        "(99999999999999999999,)", "(-6,)", "(-2, -3)", "(2.0, 3)", "(2, three)", "(2, 3", "6",
        "[2, 3]", "(1, 1, 1, 1, 1, 1, 1, 2, 3)"}) {
    EXPECT_NE(ErrorOfParsing(Npy(Header(shape), 6)), "") << shape;
  }
  EXPECT_EQ(ErrorOfParsing(Npy(Header("(6,)"), 6) + "ab"),
            "x.npy: shape (6) needs 24 bytes, the file holds 26");
}

TEST(NpyTest, SaysWhatIsExpected) {
  for (const char* descr : {"<f8", ">f4", "<i4", "|u1", "<f2"}) {
    const std::string error = ErrorOfParsing(Npy(Header("(2, 3)", descr), 6));
    EXPECT_NE(error.find("astype('float32')"), std::string::npos) << error;
  }
  const std::string error = ErrorOfParsing(Npy(Header("(2, 3)", "<f4", "True"), 6));
  EXPECT_NE(error.find("ascontiguousarray"), std::string::npos) << error;
  EXPECT_EQ(ErrorOfParsing("PK\3\4 an .npz archive is not one"), "x.npy is not a .npy file");
  EXPECT_NE(ErrorOfParsing(Npy("{'descr': '<f4', 'fortran_order': False}", 6)).find("'shape'"),
            std::string::npos);
}

}  // namespace
}  // namespace parax
