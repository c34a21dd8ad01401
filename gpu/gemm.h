// Products of row-major matrices on a CUDA device, by cuBLASLt: the `matmul` of ops.h. Sums are fp32 (never
// TF32) and rounded once.
//
// [Note: same bits wherever operands lie] The algorithm is chosen once for a problem, from the problem alone:
// types, sizes, strides, and the alignment that DeviceMemory's blocks and the strides promise; never from the
// addresses of a call. Parts of a long sum that are computed apart meet in fp32, in fixed order. So a product
// has the same bits on every call, whatever other memory is in use.
//
// Threads: one owner thread. Nothing blocks. The workspace belongs to the products of one stream.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "gpu/kernel_queue.h"
#include "headrace/bytes.h"
#include "headrace/ops.h"
#include "headrace/owned.h"

namespace headrace {

// c = a b (+ bias) or c += a b (+ bias), as Ops::matmul has it.
struct GemmCall {
  Matrix a, b;
  Transpose transpose = Transpose::none;
  const std::byte* bias = nullptr;
  Matrix c;
  bool accumulate = false;
};

enum class GemmType : std::uint8_t { f32, bf16, f16 };

// All that an algorithm depends on. c (m x n) = a (m x k) b (k x n); strides are elements between rows as
// stored. bias: of the output's type, added by the product itself.
struct GemmProblem {
  GemmType input = GemmType::f32, output = GemmType::f32;
  Transpose transpose = Transpose::none;
  bool bias = false;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  bool operator==(const GemmProblem&) const = default;
};
std::string describe(const GemmProblem& problem);

// The bias has the input's type. accumulate: c +=.
struct GemmOperands {
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  const std::byte* bias = nullptr;
  std::byte* c = nullptr;
  bool accumulate = false;
};

class CudaGemm {
 public:
  // NVIDIA's recommendation for Hopper, and room to align it.
  static constexpr Bytes workspace_bytes = (Bytes{32} << 20) + 256;

  // `workspace` is device memory; nothing is asked of the device before the first product.
  CudaGemm(std::byte* workspace, Bytes bytes);
  ~CudaGemm();

  // Nothing happens on a queue that is not active. Throws Error where cuBLAS has no algorithm or refuses to
  // start.
  void run(KernelQueue& queue, const GemmCall& call);
  // The same for every type that cuBLAS multiplies; problem.bias is this function's to set.
  void run(KernelQueue& queue, GemmProblem problem, const GemmOperands& operands);

 private:
  struct Plan;
  struct Hash {
    std::size_t operator()(const GemmProblem& problem) const noexcept;
  };
  struct HandleTraits {
    using Raw = cublasLtHandle_t;
    static Raw none() noexcept { return nullptr; }
    static void close(Raw raw) noexcept { cublasLtDestroy(raw); }
  };

  void multiply(KernelQueue& queue, const GemmProblem& problem, const GemmOperands& operands);
  Plan& plan_of(const GemmProblem& problem);

  std::byte* workspace_;
  Bytes workspace_bytes_;
  Owned<HandleTraits> handle_;
  std::unordered_map<GemmProblem, std::unique_ptr<Plan>, Hash> plans_;
};

}  // namespace headrace
