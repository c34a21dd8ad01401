// Any optimizer update as a value, run over guarded arrays of its types by any function.
#pragma once

#include <fmt/format.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/optimizer_update.h"
#include "unit/cpu_adam/arrays.h"

namespace headrace::test {

struct UpdateCase {
  OptimizerArguments arguments;
  MasterDType master = MasterDType::f32;
  MomentDType moments = MomentDType::f32;
  DType parameter_dtype = DType::f32;
  DType gradient_dtype = DType::f32;
  std::optional<DType> low = std::nullopt;
  std::uint64_t numel = 0, first_element = 0;
  std::size_t offset_bytes = 0;  // of the arrays, rounded to their own element size

  StateFormat format() const { return format_of(arguments, master, moments); }
  DType master_dtype() const {
    const DType kept = master == MasterDType::bf16 ? DType::bf16 : DType::f32;
    return master == MasterDType::none ? parameter_dtype : kept;
  }
  std::uint64_t quantised_blocks() const { return divide_up(numel, quantised_block_numel); }
};

inline std::string described(const UpdateCase& c) {
  const OptimizerArguments& a = c.arguments;
  return fmt::format(
      "{} (decoupled {}, amsgrad {}, momentum {}, nesterov {}, maximize {}, decay {}, step {}), master {}{}, "
      "moments {}, gradient {}, low {}, {} elements from {}, offset {}",
      name_of(a.kind), a.decoupled, a.amsgrad, a.momentum, a.nesterov, a.maximize, a.weight_decay, a.step,
      name_of(c.master),
      c.master == MasterDType::none ? fmt::format(" of {}", name_of(c.parameter_dtype)) : "",
      name_of(c.moments), name_of(c.gradient_dtype), c.low ? name_of(*c.low) : "none", c.numel,
      c.first_element, c.offset_bytes);
}

using Bits = std::vector<std::uint8_t>;

inline Bits encoded(const std::vector<float>& values, DType dtype) {
  Bits bytes(values.size() * size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto half = dtype == DType::bf16 ? to_bf16(values[i]).bits : to_fp16(values[i]).bits;
    if (dtype == DType::f32) std::memcpy(&bytes[4 * i], &values[i], 4);
    if (dtype != DType::f32) std::memcpy(&bytes[2 * i], &half, 2);
  }
  return bytes;
}

inline float element(const Bits& bytes, DType dtype, std::size_t i) {
  float value = 0;
  std::uint16_t half = 0;
  if (dtype == DType::f32) return std::memcpy(&value, &bytes[4 * i], 4), value;
  std::memcpy(&half, &bytes[2 * i], 2);
  return dtype == DType::bf16 ? to_float(bf16{half}) : to_float(fp16{half});
}

inline std::vector<float> decoded(const Bits& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = element(bytes, dtype, i);
  return values;
}

// The contents of every array of a case.
struct UpdateValues {
  Bits master, gradient, low;
  std::array<Bits, most_moments> moments;
  std::array<std::vector<float>, most_moments> scales;
  bool guards_intact = true;
};

inline DType moment_dtype(const UpdateCase& c) {
  return c.moments == MomentDType::bf16 ? DType::bf16 : DType::f32;
}

enum class Inputs { ordinary, adversarial };

// Codes of any value, whose scales are ordinary or any number that a scale can be.
inline void fill_quantised(const UpdateCase& c, Inputs inputs, std::uint32_t seed, Bits& codes,
                           std::vector<float>& scales) {
  constexpr float corners[] = {0.0f,
                               0x1p-149f,
                               0x1p-127f,
                               0x1p-126f,
                               1e-30f,
                               1e30f,
                               0x1.fffffep127f,
                               std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN()};
  std::mt19937 random(seed);
  codes.resize(c.numel);
  for (auto& code : codes) code = static_cast<std::uint8_t>(random());
  scales.resize(c.quantised_blocks());
  for (float& scale : scales) {
    const bool corner = inputs == Inputs::adversarial && random() % 2 == 0;
    scale = corner ? corners[random() % std::size(corners)] : 0.1f + 1e-9f * static_cast<float>(random());
  }
}

inline UpdateValues values_of(const UpdateCase& c, Inputs inputs, std::uint32_t seed) {
  const auto floats = [&](std::uint32_t which, float scale) {
    return inputs == Inputs::adversarial ? adversarial(c.numel, seed + which)
                                         : ordinary(c.numel, seed + which, scale);
  };
  UpdateValues values;
  values.master = encoded(floats(0, 1.0f), c.master_dtype());
  values.gradient = encoded(floats(1, 1.0f), c.gradient_dtype);
  if (c.low) values.low = encoded(std::vector<float>(c.numel), *c.low);
  for (int k = 0; k < moment_count(c.format()); ++k) {
    const auto at = static_cast<std::size_t>(k);
    const auto which = static_cast<std::uint32_t>(k) + 2;
    if (c.moments == MomentDType::int8) {
      fill_quantised(c, inputs, seed + which, values.moments[at], values.scales[at]);
      continue;
    }
    std::vector<float> moment = floats(which, 0.1f);
    if (moment_of(c.format(), k).squared) {
      for (float& x : moment) x = inputs == Inputs::adversarial ? x : x * x;
    }
    values.moments[at] = encoded(moment, moment_dtype(c));
  }
  return values;
}

// The arrays of a case at its offset, each between guards.
class UpdateArrays {
 public:
  UpdateArrays(const UpdateCase& c, const UpdateValues& values)
      : case_(c),
        master_(values.master, aligned(0, size_of(c.master_dtype()))),
        gradient_(values.gradient, aligned(4, size_of(c.gradient_dtype))),
        low_(values.low, aligned(2, c.low ? size_of(*c.low) : 1)) {
    const std::size_t bytes = c.moments == MomentDType::int8 ? 1 : size_of(moment_dtype(c));
    for (std::size_t k = 0; k < most_moments; ++k) {
      moments_.emplace_back(values.moments[k], aligned(4 * k + 5, bytes));
      scales_.emplace_back(values.scales[k], aligned(4 * k, 4));
    }
  }

  UpdateSpan span() {
    UpdateSpan span;
    span.format = case_.format();
    span.state.master = reinterpret_cast<std::byte*>(master_.data());
    for (std::size_t k = 0; k < static_cast<std::size_t>(moment_count(span.format)); ++k) {
      span.state.moments[k].values = reinterpret_cast<std::byte*>(moments_[k].data());
      if (case_.moments == MomentDType::int8) span.state.moments[k].scales = scales_[k].data();
    }
    span.parameter_dtype = case_.parameter_dtype;
    span.gradient = gradient_.data();
    span.gradient_dtype = case_.gradient_dtype;
    span.low_precision = case_.low ? low_.data() : nullptr;
    span.low_precision_dtype = case_.low.value_or(DType::bf16);
    span.numel = case_.numel;
    span.first_element = case_.first_element;
    return span;
  }

  UpdateValues values() {
    UpdateValues values;
    values.master = master_.values();
    values.gradient = gradient_.values();
    values.low = low_.values();
    values.guards_intact = master_.guards_intact() && gradient_.guards_intact() && low_.guards_intact();
    for (std::size_t k = 0; k < most_moments; ++k) {
      values.moments[k] = moments_[k].values();
      values.scales[k] = scales_[k].values();
      values.guards_intact =
          values.guards_intact && moments_[k].guards_intact() && scales_[k].guards_intact();
    }
    return values;
  }

 private:
  std::size_t aligned(std::size_t further, std::size_t bytes) const {
    return (case_.offset_bytes + further) / bytes * bytes % 64;
  }

  UpdateCase case_;
  Guarded<std::uint8_t> master_, gradient_, low_;
  std::vector<Guarded<std::uint8_t>> moments_;
  std::vector<Guarded<float>> scales_;
};

using Update = std::function<void(const UpdateSpan&)>;

inline UpdateValues updated(const UpdateCase& c, const UpdateValues& values, const Update& update) {
  UpdateArrays arrays(c, values);
  update(arrays.span());
  return arrays.values();
}
inline UpdateValues updated(const UpdateCase& c, const UpdateValues& values, Isa isa) {
  return updated(c, values, [&](const UpdateSpan& span) { optimizer_update(span, c.arguments, isa); });
}

// "" when equal by bits (NaN as NaN), else what differs first.
inline std::string difference(const UpdateCase& c, const UpdateValues& a, const UpdateValues& b) {
  if (!a.guards_intact || !b.guards_intact) return "guard bytes were touched";
  const auto compare = [](const std::string& name, const std::vector<float>& x,
                          const std::vector<float>& y) -> std::string {
    const std::size_t i = first_difference(x, y);
    if (i == x.size() && x.size() == y.size()) return "";
    return fmt::format("{}[{}] is {:a} against {:a}; ", name, i, x[i], y[i]);
  };
  std::string text =
      compare("master", decoded(a.master, c.master_dtype()), decoded(b.master, c.master_dtype()));
  if (c.low) text += compare("low", decoded(a.low, *c.low), decoded(b.low, *c.low));
  text += compare("gradient", decoded(a.gradient, c.gradient_dtype), decoded(b.gradient, c.gradient_dtype));
  for (std::size_t k = 0; k < most_moments; ++k) {
    const std::string name = fmt::format("moment {}", k);
    if (c.moments == MomentDType::int8) {
      const auto numbers = [](const Bits& codes) { return std::vector<float>(codes.begin(), codes.end()); };
      text += compare(name, numbers(a.moments[k]), numbers(b.moments[k]));
      text += compare(name + " scale", a.scales[k], b.scales[k]);
    } else {
      text += compare(name, decoded(a.moments[k], moment_dtype(c)), decoded(b.moments[k], moment_dtype(c)));
    }
  }
  return text;
}

}  // namespace headrace::test
