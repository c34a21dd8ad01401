#include "headrace/mounts.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace headrace {
namespace {

bool is_octal(char digit) {
  return digit >= '0' && digit <= '7';
}

// The kernel writes a space, tab, newline and backslash of a name as \040, \011, \012, \134.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool holds(const std::string& folder, const std::string& path) {
  if (folder == "/") return path.starts_with('/');
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

}  // namespace

std::vector<Mount> read_mounts(const std::string& machine_root) {
  std::vector<Mount> mounts;
  std::ifstream file(machine_root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t separator = line.find(" - ");  // optional fields end here
    if (separator == std::string::npos) continue;
    std::istringstream before(line.substr(0, separator)), after(line.substr(separator + 3));
    std::string id, parent;
    Mount mount;
    if (!(before >> id >> parent >> mount.device >> mount.root >> mount.point >> mount.options)) continue;
    after >> mount.type >> mount.source >> mount.super_options;
    mount.root = unescaped(mount.root);
    mount.point = unescaped(mount.point);
    mount.source = unescaped(mount.source);
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

const Mount* mount_of(const std::string& path, const std::vector<Mount>& mounts) {
  const Mount* best = nullptr;
  for (const Mount& mount : mounts)
    if (holds(mount.point, path) && (best == nullptr || mount.point.size() >= best->point.size()))
      best = &mount;
  return best;
}

bool has_option(std::string_view options, std::string_view wanted) {
  for (std::size_t begin = 0; begin <= options.size();) {
    const std::size_t end = std::min(options.find(',', begin), options.size());
    if (options.substr(begin, end - begin) == wanted) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace headrace
