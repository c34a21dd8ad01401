// The lines of optimizer.h over a vector type V (vector_scalar.h): one rule for each optimizer, in the parts
// between which an update pauses (update_body.h). `direct` makes the new moments of a vector of elements from
// their gradient and gives the direction of the step; `denominator` what divides it, from the root of moment
// `divisor` (-1: nothing does); `step` the new parameters. Rounding is left to others.
#pragma once

#include "cpu_adam/kernel_table.h"

namespace headrace {
namespace {

template <class V>
struct Factors {
  typename V::Floats gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  typename V::Divisor sqrt_bias2;
  typename V::Floats epsilon, coupled_decay, decay, step_size;
  bool coupled, nesterov;

  [[gnu::always_inline]] explicit Factors(const UpdateConstants& c)
      : gradient_scale(V::set(c.gradient_scale)),
        beta1(V::set(c.beta1)),
        one_minus_beta1(V::set(c.one_minus_beta1)),
        beta2(V::set(c.beta2)),
        one_minus_beta2(V::set(c.one_minus_beta2)),
        sqrt_bias2(V::set_divisor(c.sqrt_bias2)),
        epsilon(V::set(c.epsilon)),
        coupled_decay(V::set(c.coupled_decay)),
        decay(V::set(c.decay)),
        step_size(V::set(c.step_size)),
        coupled(c.coupled_decay != 0.0f),
        nesterov(c.nesterov) {}

  // The gradient that the moments see, from the one in memory.
  [[gnu::always_inline]] typename V::Floats gradient(typename V::Floats stored, typename V::Floats p) const {
    const auto g = stored * gradient_scale;
    return coupled ? V::fma(coupled_decay, p, g) : g;
  }
};

// The moments of a vector of elements, as many as the rule has.
template <class V>
using Moments = typename V::Floats[most_moments];

template <bool amsgrad>
struct AdamRule {
  static constexpr int moments = amsgrad ? 3 : 2, divisor = amsgrad ? 2 : 1;
  static constexpr bool squared[most_moments] = {false, true, true};

  template <class V, class Floats = typename V::Floats>
  [[gnu::always_inline]] static Floats direct(const Factors<V>& k, Floats g, Moments<V>& m) {
    m[0] = V::fma(k.beta1, m[0], k.one_minus_beta1 * g);
    const Floats v = m[1] = V::fma(k.beta2, m[1], (k.one_minus_beta2 * g) * g);
    if constexpr (amsgrad) m[2] = v != v ? v : v > m[2] ? v : m[2];
    return m[0];
  }
  template <class V, class Floats = typename V::Floats>
  [[gnu::always_inline]] static Floats denominator(const Factors<V>& k, Floats root) {
    return V::div(root, k.sqrt_bias2) + k.epsilon;
  }
  template <class V, class Floats = typename V::Floats>
  [[gnu::always_inline]] static Floats step(const Factors<V>& k, Floats p, Floats direction, Floats d) {
    return p * k.decay - k.step_size * (direction / d);
  }
};

struct AdagradRule {
  static constexpr int moments = 1, divisor = 0;
  static constexpr bool squared[most_moments] = {true};

  template <class V, class Floats = typename V::Floats>
  [[gnu::always_inline]] static Floats direct(const Factors<V>&, Floats g, Moments<V>& m) {
    m[0] = V::fma(g, g, m[0]);
    return g;
  }
  template <class V, class Floats = typename V::Floats>
  [[gnu::always_inline]] static Floats denominator(const Factors<V>& k, Floats root) {
    return root + k.epsilon;
  }
  template <class V, class Floats = typename V::Floats>
  [[gnu::always_inline]] static Floats step(const Factors<V>& k, Floats p, Floats direction, Floats d) {
    return p - k.step_size * (direction / d);
  }
};

struct LionRule {
  static constexpr int moments = 1, divisor = -1;
  static constexpr bool squared[most_moments] = {};

  template <class V, class Floats = typename V::Floats>
  [[gnu::always_inline]] static Floats direct(const Factors<V>& k, Floats g, Moments<V>& m) {
    const Floats x = V::fma(k.beta1, m[0], k.one_minus_beta1 * g);
    m[0] = V::fma(k.beta2, m[0], k.one_minus_beta2 * g);
    return x;
  }
  template <class V, class Floats = typename V::Floats>
  [[gnu::always_inline]] static Floats step(const Factors<V>& k, Floats p, Floats x, Floats) {
    const Floats zero = V::set(0.0f), one = V::set(1.0f);
    const Floats u = x > zero ? one : x < zero ? -one : x + zero;  // -0 + 0 is 0, and NaN stays
    return p * k.decay - k.step_size * u;
  }
};

template <bool momentum>
struct SgdRule {
  static constexpr int moments = momentum ? 1 : 0, divisor = -1;
  static constexpr bool squared[most_moments] = {};

  template <class V, class Floats = typename V::Floats>
  [[gnu::always_inline]] static Floats direct(const Factors<V>& k, Floats g, Moments<V>& m) {
    if constexpr (!momentum) return g;
    m[0] = V::fma(k.beta1, m[0], k.one_minus_beta1 * g);
    return k.nesterov ? V::fma(k.beta1, m[0], g) : m[0];
  }
  template <class V, class Floats = typename V::Floats>
  [[gnu::always_inline]] static Floats step(const Factors<V>& k, Floats p, Floats direction, Floats) {
    return p - k.step_size * direction;
  }
};

}  // namespace
}  // namespace headrace
