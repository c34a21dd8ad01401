// One matrix product on one thread, as a oneDNN primitive. Cutting a large product in fixed tiles and running
// each on one thread makes it independent of the thread count by construction [Note: one thread per product]:
// oneDNN chooses its blocking, and with it the order of sums, by the number of threads it may use.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "headrace/bytes.h"
#include "headrace/dtype.h"

namespace headrace {

// c (m x n) = a (m x k) b (k x n) (+ bias) (+ c). Strides are elements between rows as stored; a transposed
// operand is stored k x m, or n x k.
struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  bool a_transposed = false, b_transposed = false;
  DType input = DType::f32, output = DType::f32;
  bool bias = false, accumulate = false;  // accumulate: fp32 output only
  auto operator<=>(const GemmShape&) const = default;
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual Bytes scratch_bytes() const = 0;
  // Any thread whose OpenMP thread count is 1, several at once, each with scratch of its own (64-byte
  // aligned).
  virtual void run(const void* a, const void* b, const void* bias, void* c, std::byte* scratch) const = 0;
};

// Primitives by shape. One owner thread.
class GemmCache {
 public:
  // native_bf16: bf16 products are computed by oneDNN as such; else (and below AVX-512, where it has none)
  // their operands are converted to fp32 in scratch memory, as those of fp16 always are.
  explicit GemmCache(bool native_bf16);
  // Valid as long as the cache.
  const Gemm& get(const GemmShape& shape);

 private:
  bool native_bf16_;
  std::map<GemmShape, std::unique_ptr<Gemm>> gemms_;
};
bool cpu_has_bf16_gemm();

}  // namespace headrace
