// The optimizers' lines (headrace/optimizer.h) for one element in registers, and how its state is rounded for memory
// (headrace/state_codes.h).
#pragma once

#include "gpu/element.cuh"
#include "headrace/optimizer_state.h"

namespace headrace {

// One element: the master parameter and its moments, as fp32.
struct ElementState {
  float p;
  float m[most_moments];
};

__device__ inline void adam_element(const UpdateConstants& c, float g, ElementState& s) {
  s.m[0] = fmaf(c.beta1, s.m[0], c.one_minus_beta1 * g);
  const float v = s.m[1] = fmaf(c.beta2, s.m[1], (c.one_minus_beta2 * g) * g);
  if (c.amsgrad) s.m[2] = v > s.m[2] || v != v ? v : s.m[2];
  const float d = sqrtf(c.amsgrad ? s.m[2] : v) / c.sqrt_bias2 + c.epsilon;
  s.p = s.p * c.decay - c.step_size * (s.m[0] / d);
}

__device__ inline void adagrad_element(const UpdateConstants& c, float g, ElementState& s) {
  s.m[0] = fmaf(g, g, s.m[0]);
  s.p = s.p - c.step_size * (g / (sqrtf(s.m[0]) + c.epsilon));
}

__device__ inline void lion_element(const UpdateConstants& c, float g, ElementState& s) {
  const float direction = fmaf(c.beta1, s.m[0], c.one_minus_beta1 * g);
  const float sign = direction > 0.0f   ? 1.0f
                     : direction < 0.0f  ? -1.0f
                     : direction == 0.0f ? 0.0f
                                         : direction;  // NaN
  s.p = s.p * c.decay - c.step_size * sign;
  s.m[0] = fmaf(c.beta2, s.m[0], c.one_minus_beta2 * g);
}

__device__ inline void sgd_element(const UpdateConstants& c, float g, ElementState& s) {
  float direction = g;
  if (c.momentum) {
    s.m[0] = fmaf(c.beta1, s.m[0], c.one_minus_beta1 * g);
    direction = c.nesterov ? fmaf(c.beta1, s.m[0], g) : s.m[0];
  }
  s.p = s.p - c.step_size * direction;
}

// The branches are the same for all threads.
__device__ inline void update_element(const UpdateConstants& c, float gradient, ElementState& s) {
  float g = gradient * c.gradient_scale;
  if (c.coupled_decay != 0.0f) g = fmaf(c.coupled_decay, s.p, g);
  switch (c.kind) {
    case OptimizerKind::adam:
      return adam_element(c, g, s);
    case OptimizerKind::adagrad:
      return adagrad_element(c, g, s);
    case OptimizerKind::lion:
      return lion_element(c, g, s);
    case OptimizerKind::sgd:
      return sgd_element(c, g, s);
  }
}

// The random bits of one element (state_codes.h): 16 for each moment and for the master.
struct ElementBits {
  std::uint32_t moments, more;

  __device__ static ElementBits of(std::uint64_t rounding_key, std::uint64_t element) {
    const std::uint32_t bits =
        moment_bits(stretch_key(rounding_key, element), static_cast<std::uint32_t>(element));
    return {bits, more_bits(bits)};
  }
  __device__ std::uint32_t of_moment(int index) const {
    return index == 0 ? moments & 0xffffu : index == 1 ? moments >> 16 : more >> 16;
  }
  __device__ std::uint32_t of_master() const { return more & 0xffffu; }
};

// The value that bf16 memory will hold, still as fp32.
__device__ inline float rounded_stochastically(float x, std::uint32_t random) {
  return to_float(to_bf16_stochastic(x, random));
}

}  // namespace headrace
