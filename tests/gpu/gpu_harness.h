// A CUDA device for tests of kernels, real or emulated, and operands that each have an allocation of their
// own, exactly as long as they are: the emulation ends the test at the first access beside it.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/cuda_device.h"
#include "headrace/device.h"
#include "headrace/errors.h"
#include "unit/cpu_adam/arrays.h"

namespace headrace::test {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      device = make_cuda_device({.memory_bytes = Bytes{1} << 20});
    } catch (const UsageError& error) {
#if defined(HEADRACE_EMULATED_GPU)
      throw;
#endif
      GTEST_SKIP() << error.what();
    }
  }
  KernelQueue& queue(Lane lane = Lane::compute) {
    return cuda_device(*device).queue(lane);
  }

  std::unique_ptr<Device> device;
};

// The bytes of values rounded to `dtype`, and the values of such bytes.
inline std::vector<std::byte> stored(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) set_element(bytes.data(), i, dtype, values[i]);
  return bytes;
}
inline std::vector<float> widened(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = element_at(bytes.data(), i, dtype);
  return values;
}

// Device memory that holds values, `offset_bytes` into its allocation.
class Operand {
 public:
  template <class T>
  Operand(Device& device, const std::vector<T>& values, std::size_t offset_bytes = 0)
      : device_(device), offset_(offset_bytes), bytes_(values.size() * sizeof(T)) {
    std::vector<std::byte> contents(offset_ + bytes_, before);
    if (bytes_ > 0) std::memcpy(contents.data() + offset_, values.data(), bytes_);
    void* start = nullptr;
    EXPECT_EQ(cudaMalloc(&start, contents.size()), cudaSuccess);
    start_ = static_cast<std::byte*>(start);
    device_.copy(Lane::compute, start_, contents.data(), contents.size());
    device_.synchronize();
  }
  // Rounded to `dtype`.
  Operand(Device& device, DType dtype, const std::vector<float>& values, std::size_t offset_bytes = 0)
      : Operand(device, stored(dtype, values), offset_bytes) {}
  Operand(Operand&& other) noexcept
      : device_(other.device_),
        start_(std::exchange(other.start_, nullptr)),
        offset_(other.offset_),
        bytes_(other.bytes_) {}
  Operand& operator=(Operand&&) = delete;
  ~Operand() { cudaFree(start_); }

  template <class T = std::byte>
  T* data() const {
    return reinterpret_cast<T*>(start_ + offset_);
  }

  // What stands there when all lanes are idle.
  template <class T>
  std::vector<T> values() const {
    std::vector<std::byte> contents(offset_ + bytes_);
    device_.synchronize();
    device_.copy(Lane::compute, contents.data(), start_, contents.size());
    device_.synchronize();
    for (std::size_t i = 0; i < offset_; ++i) EXPECT_EQ(contents[i], before) << "a byte before an operand";
    std::vector<T> values(bytes_ / sizeof(T));
    if (bytes_ > 0) std::memcpy(values.data(), contents.data() + offset_, bytes_);
    return values;
  }
  std::vector<float> values_of(DType dtype) const { return widened(dtype, values<std::byte>()); }

 private:
  static constexpr std::byte before{0xa5};
  Device& device_;
  std::byte* start_ = nullptr;
  std::size_t offset_, bytes_;
};

// As they are after rounding to `dtype`.
inline std::vector<float> rounded(DType dtype, const std::vector<float>& values) {
  return widened(dtype, stored(dtype, values));
}

inline constexpr DType element_types[] = {DType::f32, DType::bf16, DType::f16};

// How far a result may be from the same computed in double: some roundings of fp32, and one of its type.
inline double tolerance(DType dtype, double value, double fp32_error = 1e-5) {
  const double rounding = dtype == DType::f32 ? fp32_error : dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  return fp32_error + std::abs(value) * rounding;
}

}  // namespace headrace::test
