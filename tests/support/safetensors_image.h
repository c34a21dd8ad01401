// Images of safetensors files in memory, sound and broken: their headers are text, so a test says what it
// breaks.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace headrace::testing {

inline std::string length_prefix(std::uint64_t bytes) {
  std::string prefix(8, '\0');
  for (std::size_t i = 0; i < prefix.size(); ++i) prefix[i] = static_cast<char>(bytes >> 8 * i & 0xff);
  return prefix;
}

inline std::string safetensors_image(std::string_view header, std::string_view data) {
  return length_prefix(header.size()) + std::string(header) + std::string(data);
}

inline void write_image(const std::string& path, std::string_view image) {
  std::ofstream(path, std::ios::binary) << image;
}

}  // namespace headrace::testing
