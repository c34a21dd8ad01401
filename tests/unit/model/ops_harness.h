// The CPU operations on host arrays, and plain double-precision versions of the forward ones as the oracle.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "headrace/cpu_pool.h"
#include "headrace/state_hash.h"
#include "src/model/cpu_ops.h"

namespace headrace::testing {

using Reals = std::vector<double>;

// An array of any type, rounded to it.
class Array {
 public:
  Array(DType dtype, std::size_t numel) : dtype_(dtype), bytes_(numel * size_of(dtype)) {}
  Array(DType dtype, const Reals& values) : Array(dtype, values.size()) {
    for (std::size_t i = 0; i < values.size(); ++i) set(i, static_cast<float>(values[i]));
  }
  void set(std::size_t i, float value) { set_element(bytes_.data(), i, dtype_, value); }
  double at(std::size_t i) const { return static_cast<double>(element_at(bytes_.data(), i, dtype_)); }
  std::size_t numel() const { return bytes_.size() / size_of(dtype_); }
  Reals reals() const {
    Reals values(numel());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = at(i);
    return values;
  }
  std::byte* data() { return bytes_.data(); }
  float* floats() { return reinterpret_cast<float*>(bytes_.data()); }
  double* doubles() { return reinterpret_cast<double*>(bytes_.data()); }
  DType dtype() const { return dtype_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  Matrix as(std::int64_t rows, std::int64_t columns) { return matrix(data(), dtype_, rows, columns); }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

// Values in [-amplitude, amplitude) that depend on (stream, i) alone.
inline Array hashed_array(DType dtype, std::size_t numel, std::uint64_t stream, float amplitude = 1.0f) {
  Array array(dtype, numel);
  for (std::size_t i = 0; i < numel; ++i)
    array.set(i, (static_cast<float>(splitmix64((stream << 32) + i) >> 40) * 0x1p-23f - 1.0f) * amplitude);
  return array;
}

struct OpsRun {
  explicit OpsRun(int threads = 2, bool native_bf16 = cpu_has_bf16_gemm())
      : device(make_cpu_device({.memory_bytes = capacity, .compute_threads = threads})),
        budget("device", capacity),
        memory(device->arena(), budget),
        ops(*device, memory, native_bf16) {}
  void finish() { device->synchronize(); }

  static constexpr Bytes capacity = Bytes{128} << 20;
  std::unique_ptr<Device> device;
  MemoryBudget budget;
  DeviceMemory memory;
  CpuOps ops;
};

inline std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// ---- plain forward operations

inline Reals plain_matmul(const Reals& a, const Reals& b, std::int64_t m, std::int64_t n, std::int64_t k,
                          bool a_transposed, bool b_transposed) {
  Reals c(at(m * n));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t l = 0; l < k; ++l)
        c[at(i * n + j)] +=
            a[at(a_transposed ? l * m + i : i * k + l)] * b[at(b_transposed ? j * k + l : l * n + j)];
  return c;
}

inline Reals plain_layer_norm(const Reals& x, const Reals& scale, const Reals& shift) {
  const std::size_t width = scale.size();
  Reals y(x.size());
  for (std::size_t row = 0; row < x.size(); row += width) {
    double mean = 0, variance = 0;
    for (std::size_t i = 0; i < width; ++i) mean += x[row + i] / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i)
      variance += std::pow(x[row + i] - mean, 2) / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i)
      y[row + i] = (x[row + i] - mean) / std::sqrt(variance + 1e-5) * scale[i] + shift[i];
  }
  return y;
}

inline Reals plain_rms_norm(const Reals& x, const Reals& scale, double epsilon) {
  const std::size_t width = scale.size();
  Reals y(x.size());
  for (std::size_t row = 0; row < x.size(); row += width) {
    double square = 0;
    for (std::size_t i = 0; i < width; ++i) square += x[row + i] * x[row + i] / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i) y[row + i] = x[row + i] / std::sqrt(square + epsilon) * scale[i];
  }
  return y;
}

// Rows of `width` gates and as many ups.
inline Reals plain_swiglu(const Reals& hidden, std::size_t width) {
  Reals y(hidden.size() / 2);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t gate = i / width * 2 * width + i % width;
    y[i] = hidden[gate] / (1 + std::exp(-hidden[gate])) * hidden[gate + width];
  }
  return y;
}

inline Reals plain_rotary(const AttentionShape& s, double theta, const Reals& qkv) {
  const std::int64_t depth = s.depth(), half = depth / 2;
  Reals turned = qkv;
  for (std::int64_t row = 0; row < s.batch * s.sequence; ++row)
    for (std::int64_t head = 0; head < s.heads + s.key_heads; ++head)
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(row % s.sequence) *
                             std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(depth));
        const std::size_t low = at(row * s.qkv_width() + head * depth + i), high = low + at(half);
        turned[low] = qkv[low] * std::cos(angle) - qkv[high] * std::sin(angle);
        turned[high] = qkv[high] * std::cos(angle) + qkv[low] * std::sin(angle);
      }
  return turned;
}

inline double plain_gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

inline Reals plain_attention(const AttentionShape& s, const Reals& qkv) {
  const std::int64_t depth = s.depth();
  Reals output(at(s.batch * s.sequence * s.width));
  // which: 0, 1, 2: query, key, value of query head h
  const auto part = [&](std::int64_t b, std::int64_t row, int which, std::int64_t h, std::int64_t d) {
    const std::int64_t shared = h / (s.heads / s.key_heads);
    const std::int64_t head = which == 0 ? h : s.heads + (which - 1) * s.key_heads + shared;
    return qkv[at((b * s.sequence + row) * s.qkv_width() + head * depth + d)];
  };
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t q = 0; q < s.sequence; ++q) {
        Reals weights(at(q + 1));
        double sum = 0;
        for (std::int64_t k = 0; k <= q; ++k) {
          double score = 0;
          for (std::int64_t d = 0; d < depth; ++d) score += part(b, q, 0, h, d) * part(b, k, 1, h, d);
          sum += weights[at(k)] = std::exp(score / std::sqrt(static_cast<double>(depth)));
        }
        for (std::int64_t k = 0; k <= q; ++k)
          for (std::int64_t d = 0; d < depth; ++d)
            output[at((b * s.sequence + q) * s.width + h * depth + d)] +=
                weights[at(k)] / sum * part(b, k, 2, h, d);
      }
  return output;
}

// ---- derivatives

// d/dx[i] of sum(f(x) * direction), by central differences in double precision.
inline Reals numeric_gradient(Reals x, const Reals& direction, const std::function<Reals(const Reals&)>& f) {
  constexpr double step = 1e-5;
  const auto value = [&] {
    const Reals y = f(x);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * direction[i];
    return sum;
  };
  Reals gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double before = x[i];
    x[i] = before + step;
    const double above = value();
    x[i] = before - step;
    gradient[i] = (above - value()) / (2 * step);
    x[i] = before;
  }
  return gradient;
}

}  // namespace headrace::testing
