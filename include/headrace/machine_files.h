// The files below /proc and /sys, of this machine or of one that a test made up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headrace {

class MachineFiles {
 public:
  explicit MachineFiles(std::string root = "") : root_(std::move(root)) {}

  const std::string& root() const { return root_; }
  bool exists(const std::string& path) const;
  // The first line, without the spaces at its ends; empty where the file is missing or cannot be read.
  std::optional<std::string> line(const std::string& path) const;
  std::optional<std::uint64_t> number(const std::string& path) const;
  // The value behind "KEY" and a colon, as in /proc/meminfo; the first such line counts.
  std::optional<std::string> value_of(const std::string& path, const std::string& key) const;
  // The number at its start.
  std::optional<std::uint64_t> count_of(const std::string& path, const std::string& key) const;
  // Names in a folder, sorted; none where it cannot be read.
  std::vector<std::string> names_in(const std::string& folder) const;
  // Where a path leads when its links are followed, as a path of the machine; empty when it leads nowhere.
  std::string resolved(const std::string& path) const;

 private:
  std::string root_;
};

// The choice in a list like "always [madvise] never"; the whole text where nothing is marked.
std::string chosen(const std::string& list);

}  // namespace headrace
