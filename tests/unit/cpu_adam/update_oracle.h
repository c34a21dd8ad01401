// The optimizers written out anew, one element after the other: the lines of optimizer.h in fp32, the state
// formats by the scalar functions of state_codes.h.
#pragma once

#include <algorithm>
#include <cmath>

#include "headrace/errors.h"
#include "unit/cpu_adam/update_cases.h"

namespace headrace::test {

// The fp32 factors, from the arguments anew.
struct OracleFactors {
  float scale, beta1, rest1, beta2, rest2, sqrt_bias2, epsilon, coupled, decay, step_size;
};
inline OracleFactors oracle_factors(const OptimizerArguments& a) {
  const auto step = static_cast<double>(a.step);
  const bool decoupled = a.kind == OptimizerKind::lion || (a.kind == OptimizerKind::adam && a.decoupled);
  const bool sgd = a.kind == OptimizerKind::sgd;
  const auto f = [](double x) { return static_cast<float>(x); };
  OracleFactors k{};
  k.scale = a.maximize ? -a.gradient_scale : a.gradient_scale;
  k.beta1 = f(sgd ? a.momentum : a.beta1);
  k.rest1 = f(sgd ? (a.step == 1 ? 1 : 1 - a.dampening) : 1 - a.beta1);
  k.beta2 = f(a.beta2), k.rest2 = f(1 - a.beta2);
  k.sqrt_bias2 = f(std::sqrt(1 - std::pow(a.beta2, step)));
  k.epsilon = f(a.epsilon);
  k.coupled = f(decoupled ? 0 : a.weight_decay);
  k.decay = f(decoupled ? 1 - a.learning_rate * a.weight_decay : 1);
  k.step_size = f(a.learning_rate);
  if (a.kind == OptimizerKind::adam) k.step_size = f(a.learning_rate / (1 - std::pow(a.beta1, step)));
  if (a.kind == OptimizerKind::adagrad) k.step_size = f(a.learning_rate / (1 + (step - 1) * a.rate_decay));
  return k;
}

// The new parameter and moments of one element, each line one correctly rounded operation or fma.
inline float oracle_element(const OptimizerArguments& a, const OracleFactors& k, float p, float gradient,
                            float* moment) {
  float g = gradient * k.scale;
  if (k.coupled != 0) g = std::fma(k.coupled, p, g);
  if (a.kind == OptimizerKind::adam) {
    const float first = k.rest1 * g;
    moment[0] = std::fma(k.beta1, moment[0], first);
    const float half = k.rest2 * g;
    const float second = half * g;
    moment[1] = std::fma(k.beta2, moment[1], second);
    if (a.amsgrad && (std::isnan(moment[1]) || moment[1] > moment[2])) moment[2] = moment[1];
    const float root = std::sqrt(moment[a.amsgrad ? 2 : 1]);
    const float corrected = root / k.sqrt_bias2;
    const float d = corrected + k.epsilon;
    const float decayed = p * k.decay;
    const float direction = moment[0] / d;
    const float change = k.step_size * direction;
    return decayed - change;
  }
  if (a.kind == OptimizerKind::adagrad) {
    moment[0] = std::fma(g, g, moment[0]);
    const float root = std::sqrt(moment[0]);
    const float d = root + k.epsilon;
    const float direction = g / d;
    const float change = k.step_size * direction;
    return p - change;
  }
  if (a.kind == OptimizerKind::lion) {
    const float first = k.rest1 * g;
    const float x = std::fma(k.beta1, moment[0], first);
    float u = std::isnan(x) ? x : 0.0f;
    if (x > 0) u = 1.0f;
    if (x < 0) u = -1.0f;
    const float second = k.rest2 * g;
    moment[0] = std::fma(k.beta2, moment[0], second);
    const float decayed = p * k.decay;
    const float change = k.step_size * u;
    return decayed - change;
  }
  float u = g;
  if (a.momentum != 0) {
    const float weighted = k.rest1 * g;
    moment[0] = std::fma(k.beta1, moment[0], weighted);
    u = a.nesterov ? std::fma(k.beta1, moment[0], g) : moment[0];
  }
  const float change = k.step_size * u;
  return p - change;
}

// One bf16 number, stochastically rounded, into an array.
inline void put_stochastic(Bits& bytes, std::size_t i, float value, std::uint32_t random) {
  const bf16 rounded = to_bf16_stochastic(value, random);
  std::memcpy(&bytes[2 * i], &rounded.bits, 2);
}
inline void put(Bits& bytes, DType dtype, std::size_t i, float value) {
  const Bits one = encoded({value}, dtype);
  std::copy(one.begin(), one.end(), bytes.begin() + static_cast<std::ptrdiff_t>(i * one.size()));
}

// The random bits of element i of a case.
struct OracleDraws {
  std::uint32_t master, moments[most_moments];
};
inline OracleDraws oracle_draws(const UpdateCase& c, std::size_t i) {
  const std::uint64_t number = c.first_element + i;
  const std::uint64_t key = rounding_key(c.arguments.seed, c.arguments.step);
  const std::uint32_t bits = moment_bits(stretch_key(key, number), static_cast<std::uint32_t>(number));
  const std::uint32_t more = more_bits(bits);
  return {more & 0xffff, {bits & 0xffff, bits >> 16, more >> 16}};
}

// Elements [begin, end), one quantisation block when moments are int8.
inline void oracle_block(const UpdateCase& c, UpdateValues& v, std::size_t begin, std::size_t end) {
  const OracleFactors k = oracle_factors(c.arguments);
  const auto count = static_cast<std::size_t>(moment_count(c.format()));
  const bool int8 = c.moments == MomentDType::int8;
  const std::size_t block = begin / quantised_block_numel;
  std::vector<std::array<float, most_moments>> fresh(end - begin);
  for (std::size_t i = begin; i < end; ++i) {
    float* const moment = fresh[i - begin].data();
    for (std::size_t m = 0; m < count; ++m) {
      const bool squared = moment_of(c.format(), static_cast<int>(m)).squared;
      if (!int8) moment[m] = element(v.moments[m], moment_dtype(c), i);
      if (int8 && squared) moment[m] = decode_squared(v.moments[m][i], v.scales[m][block]);
      if (int8 && !squared) moment[m] = decode_signed(v.moments[m][i], v.scales[m][block]);
    }
    const float p = oracle_element(c.arguments, k, element(v.master, c.master_dtype(), i),
                                   element(v.gradient, c.gradient_dtype, i), moment);

    const OracleDraws drawn = oracle_draws(c, i);
    if (c.master_dtype() == DType::bf16) put_stochastic(v.master, i, p, drawn.master);
    if (c.master_dtype() == DType::f32) put(v.master, DType::f32, i, p);
    if (c.low) put(v.low, *c.low, i, element(v.master, c.master_dtype(), i));
    for (std::size_t m = 0; m < count; ++m) {
      if (c.moments == MomentDType::bf16) put_stochastic(v.moments[m], i, moment[m], drawn.moments[m]);
      if (c.moments == MomentDType::f32) put(v.moments[m], DType::f32, i, moment[m]);
    }
  }
  for (std::size_t m = 0; int8 && m < count; ++m) {
    const bool squared = moment_of(c.format(), static_cast<int>(m)).squared;
    float scale = 0;
    for (auto& moment : fresh) {
      if (squared) moment[m] = std::sqrt(moment[m]);
      if (std::abs(moment[m]) > scale) scale = std::abs(moment[m]);
    }
    constexpr float largest = std::numeric_limits<float>::max();
    if (std::isinf(scale)) scale = squared ? std::sqrt(largest) : largest;
    const float inverse = inverse_scale(scale);
    v.scales[m][block] = scale;
    for (std::size_t i = begin; i < end; ++i) {
      const float x = fresh[i - begin][m];
      const std::uint32_t random = oracle_draws(c, i).moments[m];
      v.moments[m][i] = squared ? encode_root(x, inverse, random) : encode_signed(x, inverse, random);
    }
  }
}

inline UpdateValues expected(const UpdateCase& c, UpdateValues values) {
  for (std::size_t begin = 0; begin < c.numel; begin += quantised_block_numel)
    oracle_block(c, values, begin, std::min<std::size_t>(begin + quantised_block_numel, c.numel));
  return values;
}

}  // namespace headrace::test
