#include "headrace/shell_words.h"

#include <algorithm>

namespace headrace {
namespace {

// Of what may stand in a word unquoted, what no shell gives a meaning to in any place.
bool is_plain(char c) {
  constexpr std::string_view marks = "/._-+,:@%";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         marks.find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_word(std::string_view path) {
  const std::string word = (path.starts_with('-') ? "./" : "") + std::string(path);
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

std::string shell_words(const std::vector<std::string>& paths) {
  std::string words;
  for (const std::string& path : paths) {
    if (!words.empty()) words += ' ';
    words += shell_word(path);
  }
  return words;
}

}  // namespace headrace
