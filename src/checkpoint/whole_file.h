// A file that is complete or not there: written as NAME.partial, flushed, then renamed, and the folder
// flushed. A crash at any moment leaves the old file or the new one. Not thread-safe. IoError names the file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "headrace/bytes.h"
#include "headrace/owned.h"

namespace headrace {

inline constexpr std::string_view partial_suffix = ".partial";

class WholeFile {
 public:
  // Takes the space of `bytes` on the disk, where the file system can: a full disk is found before it is
  // written to.
  WholeFile(const std::string& folder, std::string_view name, Bytes bytes);
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  ~WholeFile();  // unless published, what was written is removed

  void append(std::span<const std::byte> data);
  void publish();  // once
  Bytes size_bytes() const { return next_; }

 private:
  std::string folder_, path_, partial_;
  Fd fd_;
  Bytes next_ = 0;
  bool published_ = false;
};

void write_whole_file(const std::string& folder, std::string_view name, std::string_view contents);

}  // namespace headrace
