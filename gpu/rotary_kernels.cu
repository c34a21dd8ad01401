#include "gpu/rotary_kernels.h"

#include <cmath>

#include "gpu/element.cuh"

namespace headrace {
namespace {

struct RotaryRows {
  std::int64_t rows, sequence, stride;
  std::int64_t turned_heads, depth;
  std::int64_t first_position;
  float theta;
  float direction;  // 1, or -1 to turn back
};

// A thread turns the same pair of every head of a row: one angle for all of them.
template <class T>
__global__ void turn_pairs(RotaryRows a, T* qkv) {
  const std::int64_t half = a.depth / 2, items = a.rows * half;
  for (std::int64_t item = first_item(); item < items; item += item_step()) {
    const std::int64_t row = item / half, pair = item % half;
    const float exponent = static_cast<float>(2 * pair) / static_cast<float>(a.depth);
    const float angle = static_cast<float>(a.first_position + row % a.sequence) * (1.0f / powf(a.theta, exponent));
    const float cosine = cosf(angle), sine = sinf(angle) * a.direction;
    T* const first = qkv + row * a.stride + pair;
    for (std::int64_t head = 0; head < a.turned_heads; ++head) {
      T* const x = first + head * a.depth;
      const float x0 = to_fp32(x[0]), x1 = to_fp32(x[half]);
      x[0] = from_fp32<T>(fmaf(x0, cosine, -(x1 * sine)));
      x[half] = from_fp32<T>(fmaf(x1, cosine, x0 * sine));
    }
  }
}

void turn(KernelQueue& queue, const char* name, const RotaryArguments& a, float direction) {
  const RotaryRows rows{.rows = a.batch * a.sequence,
                        .sequence = a.sequence,
                        .stride = (a.heads + 2 * a.key_heads) * a.depth,
                        .turned_heads = a.heads + a.key_heads,
                        .depth = a.depth,
                        .first_position = a.first_position,
                        .theta = a.theta,
                        .direction = direction};
  constexpr unsigned threads = 256;
  with_element(a.dtype, [&](auto element) {
    using T = decltype(element);
    launch(queue, name, {.grid = grid_blocks(rows.rows * (a.depth / 2), threads), .block = threads},
           turn_pairs<T>, rows, reinterpret_cast<T*>(a.qkv));
  });
}

}  // namespace

void rotary(KernelQueue& queue, const RotaryArguments& arguments) {
  turn(queue, "rotary", arguments, 1.0f);
}
void rotary_backward(KernelQueue& queue, const RotaryArguments& arguments) {
  turn(queue, "rotary backward", arguments, -1.0f);
}

}  // namespace headrace
