#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "image_writer.h"
#include "parax/base/file.h"
#include "parax/data/image.h"

// Images that PIL and torchvision made, and the index that says how.
namespace parax {

inline const std::string kGolden = std::string(PARAX_SOURCE_DIR) + "/tests/data/golden/";

inline Image Load(const std::string& name) {
  const std::string file = ReadFile(kGolden + name);
  Decoder decoder;
  Image image;
  EXPECT_EQ(decoder.Decode(Bytes(file), {}, image), "") << name;
  return image;
}

inline nlohmann::json GoldenIndex() {
  return nlohmann::json::parse(std::ifstream(kGolden + "index.json"));
}

}  // namespace parax
