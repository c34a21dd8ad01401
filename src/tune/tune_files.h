// The folder `headrace-tune` in each swap path, for as long as something is measured there.
#pragma once

#include <string>
#include <vector>

#include "headrace/owned.h"

namespace headrace::tune {

class TuneFiles {
 public:
  // Makes the folders and locks them; what a killed process left in them is removed. UsageError when a path
  // is no folder that can be written, when another process tunes there, or when a folder of that name holds
  // something else.
  explicit TuneFiles(const std::vector<std::string>& swap_paths);
  TuneFiles(const TuneFiles&) = delete;
  TuneFiles& operator=(const TuneFiles&) = delete;
  ~TuneFiles();  // removes the folders and all that is in them

  // The path of `name` in each folder.
  std::vector<std::string> paths_of(const std::string& name) const;
  void remove(const std::string& name) const;

 private:
  struct Place {
    std::string folder;
    Fd lock;
  };
  static Place claim(const std::string& swap_path);
  std::vector<Place> places_;
};

}  // namespace headrace::tune
