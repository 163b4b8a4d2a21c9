#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace parax {

// "1.5 GB", "312 KB": powers of 1000 with three significant figures.
std::string HumanBytes(double bytes);
// "2 h 05 min", "3 min 20 s", "12 s".
std::string HumanTime(double seconds);
// Whether the bytes are UTF-8 (RFC 3629): JSON and reports can hold nothing else.
bool IsUtf8(std::string_view text);
// The text on one line that no terminal obeys: what a file or folder is called may hold line ends
// and escape codes. Control characters and bytes that are not UTF-8 become \n, \t, \x1b ...
std::string Printable(std::string_view text);
// The candidate with the least edit distance to `word`, or "" when none is near (for "did you
// mean").
std::string Nearest(std::string_view word, std::span<const std::string> candidates);
// The number of `name` among `names`. Throws UsageError, which says what is unknown and suggests
// the nearest, or `likely` when none is near.
size_t ChoiceOf(std::string_view what, std::string_view name, std::span<const std::string> names,
                std::string_view likely);

}  // namespace parax
