#include "src/train/config_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "headrace/errors.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t largest_file_bytes = 16 << 20;
constexpr std::size_t deepest_nesting = 32;

// Where the reader was when something could not be read.
struct Fault {
  std::string_view text;
  std::size_t at = 0;      // of the character that could not be read; the length of the text at its end
  std::string_view open;   // the brackets that are open, outermost first
  bool any_value = false;  // something was read before
  bool after_key = false;  // a name was read, its value was not
};

struct Diagnosis {
  std::size_t at = 0;
  std::string what;
};

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '+' || c == '.';
}

// The word or number that holds or ends at the place of the fault.
std::string_view word_at(const Fault& fault) {
  std::size_t begin = fault.at, end = fault.at;
  while (begin > 0 && in_word(fault.text[begin - 1])) --begin;
  while (end < fault.text.size() && in_word(fault.text[end])) ++end;
  return fault.text.substr(begin, end - begin);
}

// Where the string begins that holds the place of the fault, if one does.
std::optional<std::size_t> string_at(const Fault& fault) {
  std::optional<std::size_t> begin;
  for (std::size_t i = 0; i < fault.at; ++i) {
    if (fault.text[i] == '"')
      begin = begin ? std::nullopt : std::optional(i);
    else if (begin && fault.text[i] == '\\')
      ++i;
  }
  return begin;
}

char before(const Fault& fault, std::size_t at) {
  while (at > 0 && std::isspace(static_cast<unsigned char>(fault.text[at - 1])) != 0) --at;
  return at == 0 ? '\0' : fault.text[at - 1];
}

std::string_view closing(const Fault& fault) {
  return fault.open.back() == '{' ? "}" : "]";
}

std::string expected(const Fault& fault, std::size_t at) {
  if (fault.open.empty())
    return fault.any_value ? "nothing may follow the end of the object"
                           : "one JSON object, { ... }, is expected";
  const char previous = before(fault, at);
  if (fault.after_key)
    return previous == ':' ? "a value is expected" : "a colon is expected between a name and its value";
  if (previous == '{' || (previous == ',' && fault.open.back() == '{'))
    return "a name in double quotes is expected";
  if (previous == '[' || previous == ',') return "a value is expected";
  return fmt::format("a comma or the closing {} is expected", closing(fault));
}

std::string word_fault(std::string_view word) {
  std::string lower(word);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "true" || lower == "false" || lower == "null")
    return fmt::format("{} is written in small letters, {}", word, lower);
  if (std::isalpha(static_cast<unsigned char>(word.front())) == 0)
    return "a number is written like 1, -2, 0.5 or 3e-4";
  return fmt::format("names and texts take double quotes, \"{}\"", word.substr(0, 40));
}

std::string string_fault(const Fault& fault) {
  if (fault.at == fault.text.size()) return "it ends inside a string: the closing quote is missing";
  const auto c = static_cast<unsigned char>(fault.text[fault.at]);
  if (c < 0x20) return "a string ends on the line it begins on: the closing quote is missing";
  if (c >= 0x80) return "a string holds bytes that are not UTF-8";
  return "a backslash in a string is written \\\\";
}

// What is wrong, in the words of someone who sees the file.
Diagnosis diagnose(const Fault& fault, bool number_too_large) {
  const std::string_view word = word_at(fault);
  const auto word_begin = static_cast<std::size_t>(word.data() - fault.text.data());
  if (number_too_large) return {word_begin, fmt::format("the number {} is too large", word.substr(0, 40))};
  const auto string = string_at(fault);
  const bool at_end = fault.at == fault.text.size();
  if (string && (at_end || fault.text[fault.at] != '"')) return {fault.at, string_fault(fault)};
  if (string) return {*string, expected(fault, *string)};  // a whole string in the wrong place
  if (!word.empty() && !Json::accept(word)) return {word_begin, word_fault(word)};
  if (at_end && !fault.any_value)
    return {fault.at, "it is empty; a configuration is one JSON object, { ... }"};
  if (at_end) return {fault.at, fmt::format("it ends before the closing {}", closing(fault))};
  const char c = fault.text[fault.at];
  if (c == '/' || c == '#') return {fault.at, "JSON has no comments: remove it"};
  if (c == '\'' || static_cast<unsigned char>(c) >= 0x80)
    return {fault.at, "names and texts take plain double quotes, \""};
  if ((c == '}' || c == ']') && before(fault, fault.at) == ',')
    return {fault.at, fmt::format("the comma before the closing {} is one too many", c)};
  const std::size_t at = in_word(c) ? word_begin : fault.at;
  return {at, expected(fault, at)};
}

std::string line_and_column(std::string_view text, std::size_t at) {
  const std::string_view head = text.substr(0, at);
  const auto line = std::count(head.begin(), head.end(), '\n') + 1;
  const std::size_t newline = head.rfind('\n');
  const std::string_view last = newline == std::string_view::npos ? head : head.substr(newline + 1);
  const auto characters = std::count_if(last.begin(), last.end(), [](char c) { return (c & 0xC0) != 0x80; });
  return fmt::format("line {}, column {}", line, characters + 1);
}

// Builds the value from the library's events; the library's own reader keeps the last of two equal keys.
class Reader : public nlohmann::json_sax<Json> {
 public:
  Reader(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {}
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }  // JSON has none
  bool start_object(std::size_t) override { return open('{', Json::object()); }
  bool start_array(std::size_t) override { return open('[', Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override;
  bool parse_error(std::size_t position, const std::string& token, const Json::exception& error) override;

 private:
  bool add(Json value);
  bool open(char bracket, Json value);
  bool close();

  std::string_view text_;
  const std::string& origin_;
  Json root_;
  std::vector<Json*> containers_;   // those that are open; a container does not grow while one in it is
  std::vector<std::string> names_;  // of the open objects' current members, "" for lists
  std::string open_;
  bool any_value_ = false, after_key_ = false;
};

bool Reader::add(Json value) {
  any_value_ = true;
  after_key_ = false;
  if (containers_.empty())
    root_ = std::move(value);
  else if (open_.back() == '[')
    containers_.back()->push_back(std::move(value));
  else
    (*containers_.back())[names_.back()] = std::move(value);
  return true;
}

bool Reader::open(char bracket, Json value) {
  if (open_.size() == deepest_nesting)
    throw UsageError(fmt::format("{} is not a configuration: brackets are nested more than {} deep.", origin_,
                                 deepest_nesting));
  add(std::move(value));
  Json* opened = &root_;
  if (!containers_.empty())
    opened = open_.back() == '[' ? &containers_.back()->back() : &(*containers_.back())[names_.back()];
  containers_.push_back(opened);
  names_.emplace_back();
  open_ += bracket;
  return true;
}

bool Reader::close() {
  containers_.pop_back(), names_.pop_back(), open_.pop_back();
  after_key_ = false;
  return true;
}

bool Reader::key(std::string& name) {
  names_.back() = name;
  if (containers_.back()->contains(name))
    throw UsageError(
        fmt::format("{}: \"{}\" is given twice. Keep one of them.", origin_, fmt::join(names_, ".")));
  after_key_ = true;
  return true;
}

bool Reader::parse_error(std::size_t position, const std::string&, const Json::exception& error) {
  const Fault fault{.text = text_,
                    .at = std::min(position == 0 ? 0 : position - 1, text_.size()),
                    .open = open_,
                    .any_value = any_value_,
                    .after_key = after_key_};
  const Diagnosis diagnosis = diagnose(fault, dynamic_cast<const Json::out_of_range*>(&error) != nullptr);
  throw UsageError(fmt::format("{}, {}: this is not valid JSON: {}.", origin_,
                               line_and_column(text_, diagnosis.at), diagnosis.what));
}

}  // namespace

std::string read_config_text(const std::string& path) {
  const auto refuse = [&](std::string_view why) {
    throw UsageError(fmt::format("the configuration file {} cannot be read: {}.", path, why));
  };
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) refuse("it does not exist");
  if (error) refuse(error.message());
  if (status.type() == fs::file_type::directory) refuse("it is a folder");
  if (status.type() != fs::file_type::regular) refuse("it is not a regular file");
  if (fs::file_size(path, error) > largest_file_bytes) refuse("it is larger than 16 MiB");
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(std::strerror(errno));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Json parse_config_text(std::string_view text, const std::string& origin) {
  Reader reader(text, origin);
  Json::sax_parse(text, &reader);
  return reader.take();
}

}  // namespace headrace
