#include "parax/cli/toml.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "parax/base/error.h"

namespace parax {
namespace {

bool IsBare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  std::vector<TomlItem> Parse() {
    std::vector<TomlItem> items;
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a mark that some editors put before UTF-8
    for (SkipLines(); !AtEnd(); SkipLines()) {
      TomlItem item = ParseItem();
      const auto same = [&](const TomlItem& other) { return other.key == item.key; };
      if (std::ranges::any_of(items, same)) Wrong("'{}' is there twice", item.key);
      items.push_back(std::move(item));
    }
    return items;
  }

 private:
  template <typename... Args>
  [[noreturn]] void Wrong(fmt::format_string<Args...> format, Args&&... args) const {
    FailUsage("{}:{}: {}", where_, line_, fmt::format(format, std::forward<Args>(args)...));
  }

  bool AtEnd() const { return at_ == text_.size(); }
  char Peek() const { return AtEnd() ? '\n' : text_[at_]; }
  bool Take(char c) {
    if (AtEnd() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void SkipBlanks() {
    while (Take(' ') || Take('\t') || Take('\r')) {
    }
    if (Peek() == '#') at_ = std::min(text_.find('\n', at_), text_.size());
  }
  void SkipLines() {
    for (SkipBlanks(); Take('\n'); SkipBlanks()) ++line_;
  }

  TomlItem ParseItem() {
    if (Peek() == '[') Wrong("sections are not known: keys stand alone, as model = \"resnet18\"");
    TomlItem item;
    item.line = line_;
    item.key = Peek() == '"' || Peek() == '\'' ? ParseString() : ParseWord();
    SkipBlanks();
    if (item.key.empty() || !Take('=')) Wrong("expected key = value, as model = \"resnet18\"");
    SkipBlanks();
    item.is_array = Take('[');
    if (item.is_array) {
      for (SkipLines(); !Take(']'); SkipLines()) {
        if (AtEnd()) Wrong("the array of '{}' does not end", item.key);
        item.values.push_back(ParseValue(item.key));
        SkipLines();
        if (!Take(',') && Peek() != ']') Wrong("expected , or ] in the array of '{}'", item.key);
      }
    } else {
      item.values.push_back(ParseValue(item.key));
    }
    SkipBlanks();
    if (Peek() != '\n') Wrong("more stands behind the value of '{}'", item.key);
    return item;
  }

  std::string ParseWord() {
    const size_t begin = at_;
    while (!AtEnd() && IsBare(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string ParseValue(const std::string& key) {
    if (Peek() == '"' || Peek() == '\'') return ParseString();
    const size_t begin = at_;
    while (!AtEnd() && (IsBare(text_[at_]) || text_[at_] == '+' || text_[at_] == '.')) ++at_;
    const std::string word(text_.substr(begin, at_ - begin));
    if (word.empty()) Wrong("'{}' has no value", key);
    const bool is_number = word.find_first_of("0123456789") == 0 ||
                           word.find_first_of("+-.") == 0 || word == "nan" || word == "inf";
    if (!is_number && word != "true" && word != "false") {
      Wrong("{} = {}: a text needs quotes: \"{}\"", key, word, word);
    }
    return word;
  }

  std::string ParseString() {
    const char quote = text_[at_++];
    std::string value;
    while (!Take(quote)) {
      if (Peek() == '\n') Wrong("a text has no closing {}", quote);
      const char c = text_[at_++];
      value += c == '\\' && quote == '"' ? ParseEscape() : std::string(1, c);
    }
    return value;
  }

  std::string ParseEscape() {
    static constexpr std::string_view kLetters = "\"\\bfnrt", kMeanings = "\"\\\b\f\n\r\t";
    const char c = Peek();
    if (const size_t i = kLetters.find(c); i != std::string_view::npos) {
      ++at_;
      return std::string(1, kMeanings[i]);
    }
    // \u00XX, as TomlQuote writes control characters; other characters stand for themselves.
    unsigned code = 0;
    const std::string_view digits = text_.substr(std::min(at_ + 1, text_.size()), 4);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (c != 'u' || error != std::errc() || end != digits.data() + 4 || code >= 0x80) {
      Wrong("a text holds \\{}, which is not known; a backslash is written \\\\",
            c == '\n' ? ' ' : c);
    }
    at_ += 5;
    return std::string(1, static_cast<char>(code));
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<TomlItem> ParseToml(std::string_view text, const std::string& where) {
  return Parser(text, where).Parse();
}

std::string TomlQuote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace parax
