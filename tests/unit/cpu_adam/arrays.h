// Arrays at any offset with guard bytes around them, and inputs that reach every corner of fp32.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "headrace/dtype.h"

namespace headrace::test {

inline constexpr std::uint64_t tested_numels[] = {0,  1,  2,  7,  8,    9,    15,   16,  17,
                                                  31, 33, 63, 65, 1023, 1024, 1025, 4097};

inline bool same_bits(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}
inline bool same_bits(bf16 a, bf16 b) {
  return same_bits(to_float(a), to_float(b));
}
inline bool same_bits(fp16 a, fp16 b) {
  return same_bits(to_float(a), to_float(b));
}
inline bool same_bits(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

// Index of the first element that differs, or the length.
template <class A, class B>
std::size_t first_difference(const A& a, const B& b) {
  std::size_t i = 0;
  while (i < a.size() && i < b.size() && same_bits(a[i], b[i])) ++i;
  return i;
}

// `numel` elements that start `offset_bytes` after a 64-byte border, between guards of a known byte.
template <class T>
class Guarded {
 public:
  Guarded(const std::vector<T>& values, std::size_t offset_bytes)
      : numel_(values.size()),
        bytes_(values.size() * sizeof(T) + 64 + offset_bytes + 2 * guard_bytes, guard) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data()) + guard_bytes;
    start_ = guard_bytes + (64 - address % 64) % 64 + offset_bytes;
    if (numel_ > 0) std::memcpy(bytes_.data() + start_, values.data(), numel_ * sizeof(T));
  }
  T* data() { return reinterpret_cast<T*>(bytes_.data() + start_); }
  std::vector<T> values() {
    std::vector<T> copy(numel_);
    if (numel_ > 0) std::memcpy(copy.data(), data(), numel_ * sizeof(T));
    return copy;
  }
  bool guards_intact() const {
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      const bool inside = i >= start_ && i < start_ + numel_ * sizeof(T);
      if (!inside && bytes_[i] != guard) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t guard_bytes = 128;
  static constexpr unsigned char guard = 0xa5;
  std::size_t numel_, start_ = 0;
  std::vector<unsigned char> bytes_;
};

// Half ordinary values, half zeros, denormals, infinities, NaN, huge and tiny values and halfway cases of
// bf16 and fp16.
inline std::vector<float> adversarial(std::uint64_t numel, std::uint32_t seed) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  constexpr float special[] = {0.0f,
                               -0.0f,
                               0x1p-149f,
                               -0x1p-149f,
                               0x1.fffffcp-127f,
                               0x1p-126f,
                               0x1p-133f,
                               0x1.8p-134f,
                               inf,
                               -inf,
                               0x1.fffffep127f,
                               -0x1.fffffep127f,
                               0x1.ffp127f,
                               1e30f,
                               -1e30f,
                               1e-30f,
                               1e-38f,
                               0x1.01p0f,
                               0x1.03p0f,
                               0x1.010002p0f,
                               0x1.00fffep0f,
                               0x1.002p0f,
                               0x1.006p0f,
                               0x1.ffep15f,
                               0x1.8p-25f,
                               std::numeric_limits<float>::quiet_NaN()};
  std::mt19937 random(seed);
  std::normal_distribution<float> ordinary(0.0f, 1.0f);
  std::vector<float> values(numel);
  for (float& x : values) {
    x = random() % 2 == 0 ? ordinary(random) : special[random() % std::size(special)];
  }
  return values;
}

inline std::vector<float> ordinary(std::uint64_t numel, std::uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0.0f, scale);
  std::vector<float> values(numel);
  for (float& x : values) x = distribution(random);
  return values;
}

inline std::vector<bf16> as_bf16(const std::vector<float>& values) {
  std::vector<bf16> rounded;
  for (const float x : values) rounded.push_back(to_bf16(x));
  return rounded;
}

inline std::vector<fp16> as_fp16(const std::vector<float>& values) {
  std::vector<fp16> rounded;
  for (const float x : values) rounded.push_back(to_fp16(x));
  return rounded;
}

}  // namespace headrace::test
