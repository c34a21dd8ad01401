#include "gpu/bias_rows.h"

#include "gpu/element.cuh"

namespace headrace {
namespace {

template <class C, class B>
__global__ void bias_rows_kernel(C* c, const B* bias, std::int64_t rows, std::int64_t columns,
                                 std::int64_t stride, bool accumulate) {
  for (std::int64_t i = first_item(); i < rows * columns; i += item_step()) {
    const std::int64_t column = i % columns;
    C* at = c + i / columns * stride + column;
    const float before = accumulate ? to_fp32(*at) : 0.0f;
    *at = from_fp32<C>(bias != nullptr ? before + to_fp32(bias[column]) : before);
  }
}

template <class C, class B>
void launch_typed(KernelQueue& queue, const BiasRows& r) {
  constexpr unsigned threads = 256;
  launch(queue, "bias", {grid_blocks(r.rows * r.columns, threads), threads}, bias_rows_kernel<C, B>,
         reinterpret_cast<C*>(r.c), reinterpret_cast<const B*>(r.bias), r.rows, r.columns, r.stride,
         r.accumulate);
}

}  // namespace

void bias_rows(KernelQueue& queue, const BiasRows& r) {
  switch (r.type) {
    case GemmType::bf16:
      return launch_typed<__nv_bfloat16, __nv_bfloat16>(queue, r);
    case GemmType::f16:
      return launch_typed<__half, __half>(queue, r);
    case GemmType::f32:
      break;
  }
  switch (r.bias_type) {
    case GemmType::bf16:
      return launch_typed<float, __nv_bfloat16>(queue, r);
    case GemmType::f16:
      return launch_typed<float, __half>(queue, r);
    case GemmType::f32:
      return launch_typed<float, float>(queue, r);
  }
}

}  // namespace headrace
