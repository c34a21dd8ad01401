// Rotary positions: element i of the first half of a head and element i of the second half are turned, as a
// pair, by the angle position * theta^(-2 i / depth). Halves are split as in Hugging Face's Llama
// (rotate_half), and the angle is computed in fp32, as there.
//
// In place on rows of (heads + 2 key_heads) * depth elements: queries, keys, values. Queries and keys are
// turned. Device memory of any alignment of the element type.
#pragma once

#include <cstdint>

#include "gpu/kernel_queue.h"
#include "headrace/ops.h"

namespace headrace {

struct RotaryArguments {
  std::byte* qkv = nullptr;  // batch * sequence rows, contiguous
  DType dtype = DType::f32;
  std::int64_t batch = 0, sequence = 0;
  std::int64_t heads = 0, key_heads = 0;  // key_heads < heads: groups of query heads share one
  std::int64_t depth = 0;                 // even
  float theta = 10000.0f;
  std::int64_t first_position = 0;  // of each sample's first row
};
void rotary(KernelQueue& queue, const RotaryArguments& arguments);
// The gradient of what rotary() turned becomes that of what it was given.
void rotary_backward(KernelQueue& queue, const RotaryArguments& arguments);

}  // namespace headrace
