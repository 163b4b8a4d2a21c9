#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace parax {

// One `key = value` of a configuration file; an array has any number of values, all else one.
struct TomlItem {
  std::string key;
  std::vector<std::string> values;  // strings unquoted, numbers and booleans as they are written
  bool is_array = false;
  int line = 0;
};

// The part of TOML (https://toml.io) that flags need: strings, numbers, booleans and arrays of
// them, with comments. Throws UsageError naming `where` and the line for everything else.
std::vector<TomlItem> ParseToml(std::string_view text, const std::string& where);
// `text` as a TOML string, on one line whatever it holds.
std::string TomlQuote(std::string_view text);

}  // namespace parax
