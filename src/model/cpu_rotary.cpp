// Rotary positions on the CPU. Angles, their cosines and sines are fp32, as in Hugging Face's Llama, and are
// computed once a position: by the C library, so every instruction set of the row kernels has the same ones.
#include <cmath>

#include "src/model/cpu_ops.h"
#include "src/model/cpu_pieces.h"

namespace headrace {
namespace {

constexpr std::int64_t position_grain = 16;

}  // namespace

void CpuOps::turn(const char* name, const AttentionShape& shape, float theta, float direction, std::byte* qkv,
                  std::int64_t first_position) {
  const std::int64_t depth = shape.depth(), half = depth / 2, turned = shape.heads + shape.key_heads;
  const StackScope scope(memory_);
  auto* cosines = reinterpret_cast<float*>(
      memory_.push(MemoryTag::workspace, bytes_of(shape.sequence * depth, DType::f32)));
  float* sines = cosines + shape.sequence * half;
  enqueue_pieces("rotary angles", shape.sequence, position_grain,
                 [=](std::int64_t begin, std::int64_t end, int) {
                   for (std::int64_t pair = 0; pair < half; ++pair) {
                     const float exponent = static_cast<float>(2 * pair) / static_cast<float>(depth);
                     const float frequency = 1.0f / std::pow(theta, exponent);
                     for (std::int64_t position = begin; position < end; ++position) {
                       const float angle = static_cast<float>(first_position + position) * frequency;
                       cosines[position * half + pair] = std::cos(angle);
                       sines[position * half + pair] = std::sin(angle) * direction;
                     }
                   }
                 });
  enqueue_pieces(name, shape.batch * shape.sequence, pass_grain_rows(turned * depth),
                 [=](std::int64_t begin, std::int64_t end, int) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     const std::int64_t at = row % shape.sequence * half;
                     row_kernels(shape.dtype)
                         .rotary(qkv + bytes_of(row * shape.qkv_width(), shape.dtype), cosines + at,
                                 sines + at, turned, depth);
                   }
                 });
}

void CpuOps::rotary(const AttentionShape& shape, float theta, std::byte* qkv, std::int64_t first_position) {
  turn("rotary", shape, theta, 1.0f, qkv, first_position);
}

void CpuOps::rotary_backward(const AttentionShape& shape, float theta, std::byte* dqkv) {
  turn("rotary backward", shape, theta, -1.0f, dqkv, 0);
}

}  // namespace headrace
