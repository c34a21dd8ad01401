#include "src/cli/logits_file.h"

#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "headrace/errors.h"

namespace headrace::cli {

static_assert(std::endian::native == std::endian::little, "'<f4' is what is in memory");

LogitsFile::LogitsFile(const std::string& path, int columns)
    : path_(path), columns_(columns), file_(path, std::ios::binary | std::ios::trunc) {
  if (!file_) throw UsageError(fmt::format("--logits {} cannot be written: {}.", path, std::strerror(errno)));
  write_header();
}

void LogitsFile::add(std::span<const float> row) {
  file_.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size_bytes()));
  ++rows_;
}

LogitsFile::~LogitsFile() {
  std::error_code ignored;
  if (!closed_ && std::filesystem::is_regular_file(path_, ignored)) std::filesystem::remove(path_, ignored);
}

void LogitsFile::close() {
  file_.seekp(0);
  write_header();
  file_.close();
  closed_ = !file_.fail();
  if (!file_) throw Error(fmt::format("--logits {} could not be written: {}.", path_, std::strerror(errno)));
}

// Format 1.0 of NumPy; of constant size, so that it can be written again.
void LogitsFile::write_header() {
  constexpr std::size_t header_bytes = 128, preamble_bytes = 10;
  std::string text("\x93NUMPY\x01\x00", 8);
  constexpr std::size_t rest = header_bytes - preamble_bytes;
  text.push_back(static_cast<char>(rest)), text.push_back('\0');
  text += fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows_, columns_);
  text.resize(header_bytes - 1, ' ');
  file_ << text << '\n';
}

}  // namespace headrace::cli
