// Sizes in bytes: literals, text in both directions, and rounding.
// Every size in Headrace is in bytes and 64-bit; a count of elements says `numel` in its name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headrace {

using Bytes = std::uint64_t;

namespace literals {
consteval Bytes operator""_KiB(unsigned long long n) {
  return n << 10;
}
consteval Bytes operator""_MiB(unsigned long long n) {
  return n << 20;
}
consteval Bytes operator""_GiB(unsigned long long n) {
  return n << 30;
}
}  // namespace literals

// "1.50 GiB", "12.0 MiB", "512 B": binary units, three significant digits.
std::string format_bytes(Bytes bytes);

// "64MiB", "2GB", "1.5GiB", "4096", "10 kB": decimal units (kB, MB, GB, TB) are powers of 1000, binary ones
// (KiB ...) of 1024, no unit means bytes. A fraction needs a unit above the byte, and is rounded to the
// nearest byte. `what` names the option in the error. Throws UsageError on anything else: negative and
// overflowing values, and what is above zero but less than a byte.
Bytes parse_bytes(std::string_view text, std::string_view what);

// Smallest multiple of `alignment` (> 0, any integer) that is >= value.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}
constexpr std::uint64_t divide_up(std::uint64_t value, std::uint64_t divisor) {
  return (value + divisor - 1) / divisor;
}

}  // namespace headrace
