// Logits as a NumPy file: float32, a row for each position.
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>

namespace headrace::cli {

class LogitsFile {
 public:
  // UsageError where it cannot be written.
  LogitsFile(const std::string& path, int columns);
  void add(std::span<const float> row);
  ~LogitsFile();  // nothing half done is left
  LogitsFile(const LogitsFile&) = delete;
  LogitsFile& operator=(const LogitsFile&) = delete;
  // Says in the file how many rows there are; Error where not all was written.
  void close();

 private:
  void write_header();

  std::string path_;
  int columns_;
  bool closed_ = false;
  std::uint64_t rows_ = 0;
  std::ofstream file_;
};

}  // namespace headrace::cli
