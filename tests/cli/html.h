#pragma once

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

namespace parax::testing {

inline size_t Count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// Every tag that must be closed is, in the right order.
inline void ExpectBalanced(const std::string& html) {
  static const std::regex kTag("<(/?)([a-z0-9]+)[^>]*?(/?)>");
  std::vector<std::string> open;
  for (std::sregex_iterator it(html.begin(), html.end(), kTag), end; it != end; ++it) {
    const std::string tag = (*it)[2];
    if (tag == "meta" || tag == "img" || tag == "br" || (*it)[3].length() > 0) continue;
    if ((*it)[1].length() == 0) {
      open.push_back(tag);
    } else {
      ASSERT_FALSE(open.empty()) << tag;
      ASSERT_EQ(open.back(), tag) << "at byte " << it->position();
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
}

}  // namespace parax::testing
