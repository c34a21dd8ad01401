// A folder with the files of /proc and /sys that the kernel would show on a machine that a test makes up.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.h"

namespace headrace {

class FakeMachine {
 public:
  FakeMachine& with(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
    return *this;
  }
  FakeMachine& with_folder(const std::string& path) {
    std::filesystem::create_directories(root_ + path);
    return *this;
  }
  // A link that leads to `target`, a path of the same machine.
  FakeMachine& with_link(const std::string& path, const std::string& target) {
    const std::filesystem::path link = root_ + path;
    std::filesystem::create_directories(link.parent_path());
    std::filesystem::create_symlink(
        std::filesystem::path(root_ + target).lexically_relative(link.parent_path()), link);
    return *this;
  }
  const std::string& root() const { return root_; }

 private:
  const testing::TemporaryFolder folder_;
  const std::string root_ = folder_.path();
};

}  // namespace headrace
