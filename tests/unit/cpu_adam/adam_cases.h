// One optimizer update as a value, run over guarded arrays by any function, and the formula of DESIGN section
// 9 written out anew as the oracle.
#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include "headrace/optimizer_update.h"
#include "tests/support/adam_arrays.h"
#include "unit/cpu_adam/arrays.h"

namespace headrace::test {

enum class Low { none, bf16, f32 };

struct AdamCase {
  std::vector<float> master, exp_avg, exp_avg_sq, gradient;  // gradient as bf16 when `gradient_dtype` says so
  DType gradient_dtype = DType::f32;
  Low low = Low::none;
  std::size_t offset_bytes = 0;  // of each array, in its own element size
};

struct AdamResult {
  std::vector<float> master, exp_avg, exp_avg_sq, low;
  bool guards_intact = true;
};

inline AdamCase adversarial_case(std::uint64_t numel, std::uint32_t seed) {
  return {.master = adversarial(numel, seed),
          .exp_avg = adversarial(numel, seed + 1),
          .exp_avg_sq = adversarial(numel, seed + 2),
          .gradient = adversarial(numel, seed + 3)};
}

inline AdamCase ordinary_case(std::uint64_t numel, std::uint32_t seed) {
  AdamCase input = {.master = ordinary(numel, seed),
                    .exp_avg = ordinary(numel, seed + 1, 0.1f),
                    .exp_avg_sq = ordinary(numel, seed + 2, 0.1f),
                    .gradient = ordinary(numel, seed + 3)};
  for (float& v : input.exp_avg_sq) v *= v;
  return input;
}

using Update = std::function<void(const AdamArrays&)>;

inline AdamResult run(const AdamCase& input, const Update& update) {
  const std::size_t offset = input.offset_bytes;
  Guarded<float> master(input.master, offset / 4 * 4);
  Guarded<float> exp_avg(input.exp_avg, (offset + 4) / 4 * 4 % 64);
  Guarded<float> exp_avg_sq(input.exp_avg_sq, (offset + 20) / 4 * 4 % 64);
  Guarded<float> gradient(input.gradient, offset / 4 * 4);
  Guarded<bf16> gradient_bf16(as_bf16(input.gradient), offset / 2 * 2);
  Guarded<float> low(std::vector<float>(input.master.size()), offset / 4 * 4);
  Guarded<bf16> low_bf16(std::vector<bf16>(input.master.size()), (offset + 2) / 2 * 2 % 64);

  AdamArrays block;
  block.master = master.data();
  block.exp_avg = exp_avg.data();
  block.exp_avg_sq = exp_avg_sq.data();
  block.gradient_dtype = input.gradient_dtype;
  block.gradient =
      input.gradient_dtype == DType::f32 ? static_cast<const void*>(gradient.data()) : gradient_bf16.data();
  if (input.low == Low::f32) block.low_precision = low.data(), block.low_precision_dtype = DType::f32;
  if (input.low == Low::bf16) block.low_precision = low_bf16.data(), block.low_precision_dtype = DType::bf16;
  block.numel = input.master.size();
  update(block);

  AdamResult result{master.values(), exp_avg.values(), exp_avg_sq.values(), low.values(), true};
  if (input.low == Low::bf16) {
    const std::vector<bf16> written = low_bf16.values();
    for (std::size_t i = 0; i < written.size(); ++i) result.low[i] = to_float(written[i]);
  }
  result.guards_intact = master.guards_intact() && exp_avg.guards_intact() && exp_avg_sq.guards_intact() &&
                         gradient.guards_intact() && gradient_bf16.guards_intact() && low.guards_intact() &&
                         low_bf16.guards_intact();
  return result;
}

// The oracle: one correctly rounded fp32 operation a line.
inline AdamResult expected(const AdamCase& input, const OptimizerArguments& a) {
  const auto step = static_cast<double>(a.step);
  const auto beta1 = static_cast<float>(a.beta1), rest1 = static_cast<float>(1 - a.beta1);
  const auto beta2 = static_cast<float>(a.beta2), rest2 = static_cast<float>(1 - a.beta2);
  const auto sqrt_bias2 = static_cast<float>(std::sqrt(1 - std::pow(a.beta2, step)));
  const auto step_size = static_cast<float>(a.learning_rate / (1 - std::pow(a.beta1, step)));
  const auto decay = static_cast<float>(1 - a.learning_rate * a.weight_decay);
  AdamResult out{input.master, input.exp_avg, input.exp_avg_sq, std::vector<float>(input.master.size()),
                 true};
  for (std::size_t i = 0; i < input.master.size(); ++i) {
    float& p = out.master[i];
    float& m = out.exp_avg[i];
    float& v = out.exp_avg_sq[i];
    float g = input.gradient[i];
    if (input.gradient_dtype == DType::bf16) g = to_float(to_bf16(g));
    g = g * a.gradient_scale;
    if (!a.decoupled && a.weight_decay != 0) g = std::fma(static_cast<float>(a.weight_decay), p, g);
    const float weighted_g = rest1 * g;
    m = std::fma(beta1, m, weighted_g);
    const float half_squared_g = rest2 * g;
    const float weighted_square = half_squared_g * g;
    v = std::fma(beta2, v, weighted_square);
    const float root = std::sqrt(v);
    const float corrected = root / sqrt_bias2;
    const float d = corrected + static_cast<float>(a.epsilon);
    if (a.decoupled) p = p * decay;
    const float direction = m / d;
    const float change = step_size * direction;
    p = p - change;
    if (input.low == Low::bf16) out.low[i] = to_float(to_bf16(p));
    if (input.low == Low::f32) out.low[i] = p;
  }
  return out;
}

// "" when equal by bits (NaN as NaN), else what differs first.
inline std::string difference(const AdamResult& a, const AdamResult& b) {
  if (!a.guards_intact || !b.guards_intact) return "guard bytes were touched";
  const auto compare = [](const char* name, const std::vector<float>& x,
                          const std::vector<float>& y) -> std::string {
    const std::size_t i = first_difference(x, y);
    if (i == x.size() && x.size() == y.size()) return "";
    return std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(x[i]) + " against " +
           std::to_string(y[i]);
  };
  for (const std::string& text :
       {compare("master", a.master, b.master), compare("exp_avg", a.exp_avg, b.exp_avg),
        compare("exp_avg_sq", a.exp_avg_sq, b.exp_avg_sq), compare("low", a.low, b.low)}) {
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace headrace::test
