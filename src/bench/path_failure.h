// A path of a benchmark whose file failed on the way: which one it is, and what its owner can do.
#pragma once

#include <cstddef>
#include <string>

#include "headrace/errors.h"

namespace headrace {

// Names the folder: the file itself has no name any more.
class PathFailure : public Error {
 public:
  PathFailure(std::size_t file, const std::string& folder, const IoError& error);
  std::size_t file() const { return file_; }  // its number
  bool is_full() const;                       // the disk, or what its user may take of it

 private:
  std::size_t file_;
  int code_;
};

}  // namespace headrace
