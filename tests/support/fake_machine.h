// A folder with the files of /proc and /sys that the kernel would show on a machine that a test makes up.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace headrace {

class FakeMachine {
 public:
  FakeMachine() {
    std::string name = std::filesystem::temp_directory_path() / "headrace-machine-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    root_ = name;
  }
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;
  ~FakeMachine() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

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
  std::string root_;
};

}  // namespace headrace
