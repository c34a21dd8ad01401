#include "headrace/machine_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* spaces = " \t\r\n";

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(spaces);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

std::optional<std::uint64_t> number_at_start(const std::optional<std::string>& text) {
  std::uint64_t value = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), value).ec != std::errc{})
    return std::nullopt;
  return value;
}

}  // namespace

bool MachineFiles::exists(const std::string& path) const {
  std::error_code unknown;
  return fs::exists(root_ + path, unknown);
}

std::optional<std::string> MachineFiles::line(const std::string& path) const {
  std::ifstream file(root_ + path);
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  return trimmed(text);
}

std::optional<std::uint64_t> MachineFiles::number(const std::string& path) const {
  return number_at_start(line(path));
}

std::optional<std::string> MachineFiles::value_of(const std::string& path, const std::string& key) const {
  std::ifstream file(root_ + path);
  for (std::string text; std::getline(file, text);) {
    const std::size_t colon = text.find(':');
    if (colon != std::string::npos && trimmed(text.substr(0, colon)) == key)
      return trimmed(text.substr(colon + 1));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> MachineFiles::count_of(const std::string& path, const std::string& key) const {
  return number_at_start(value_of(path, key));
}

std::vector<std::string> MachineFiles::names_in(const std::string& folder) const {
  std::vector<std::string> names;
  std::error_code unreadable;
  for (fs::directory_iterator entry(root_ + folder, unreadable), end; !unreadable && entry != end;
       entry.increment(unreadable))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string MachineFiles::resolved(const std::string& path) const {
  std::error_code missing;
  std::string target = fs::canonical(root_ + path, missing).string();
  if (missing) return {};
  const std::string base = root_.empty() ? "" : fs::canonical(root_, missing).string();
  return target.starts_with(base) ? target.substr(base.size()) : target;
}

std::string chosen(const std::string& list) {
  const std::size_t open = list.find('['), close = list.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return list;
  return list.substr(open + 1, close - open - 1);
}

}  // namespace headrace
