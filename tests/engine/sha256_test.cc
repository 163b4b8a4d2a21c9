#include "parax/base/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace parax {
namespace {

std::string Digest(const std::string& text, size_t piece) {
  Sha256 sha;
  const auto bytes = std::as_bytes(std::span(text));
  for (size_t at = 0; at < bytes.size(); at += piece) {
    sha.Update(bytes.subspan(at, std::min(piece, bytes.size() - at)));
  }
  return sha.Finish();
}

// Test vectors of FIPS 180-4 (NIST's examples).
TEST(Sha256, PublishedVectors) {
  EXPECT_EQ(Digest("", 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Digest("abc", 1), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Digest(std::string(1'000'000, 'a'), 977),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesDoNotMatter) {
  for (size_t size = 50; size < 140; ++size) {
    const std::string text(size, 'x');
    const std::string whole = Digest(text, size);
    for (const size_t piece : {1, 7, 63, 64, 65}) EXPECT_EQ(Digest(text, piece), whole) << size;
  }
}

}  // namespace
}  // namespace parax
