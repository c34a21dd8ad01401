// The part of a product with bias that cuBLAS leaves to us: a bias of another type than the output, and
// products of no terms.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/gemm.h"
#include "gpu/kernel_queue.h"

namespace headrace {

// For every row: c = bias, or c += bias; in fp32, rounded once. No bias: zeros. The bias has c's type or is
// 16 bits wide beside an fp32 c.
struct BiasRows {
  std::byte* c = nullptr;
  GemmType type = GemmType::f32;
  const std::byte* bias = nullptr;
  GemmType bias_type = GemmType::f32;
  std::int64_t rows = 0, columns = 0, stride = 0;
  bool accumulate = false;
};
void bias_rows(KernelQueue& queue, const BiasRows& rows);

}  // namespace headrace
