#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "headrace/errors.h"
#include "headrace/optimizer_state.h"

namespace headrace {
namespace {

std::uint64_t quantised_blocks(std::uint64_t numel) {
  return divide_up(numel, quantised_block_numel);
}

// Of fp32 or bf16, padded so that what lies behind is aligned.
Bytes array_bytes(bool is_fp32, std::uint64_t numel) {
  return is_fp32 ? numel * sizeof(float) : round_up(numel * sizeof(bf16), alignof(float));
}

Bytes master_bytes(MasterDType dtype, std::uint64_t numel) {
  return dtype == MasterDType::none ? 0 : array_bytes(dtype == MasterDType::f32, numel);
}

// Of a moment's values alone.
Bytes value_bytes(MomentDType dtype, std::uint64_t numel) {
  if (dtype == MomentDType::int8) return quantised_blocks(numel) * quantised_block_numel;
  return array_bytes(dtype == MomentDType::f32, numel);
}

Bytes scale_bytes(MomentDType dtype, std::uint64_t numel) {
  return dtype == MomentDType::int8 ? quantised_blocks(numel) * sizeof(float) : 0;
}

template <class T>
void widen(const std::byte* values, std::uint64_t first, std::uint64_t numel, float* out) {
  const T* from = reinterpret_cast<const T*>(values) + first;
  for (std::uint64_t i = 0; i < numel; ++i) out[i] = to_float(from[i]);
}

void copy_fp32(const std::byte* values, std::uint64_t first, std::uint64_t numel, float* out) {
  if (numel > 0) std::memcpy(out, values + first * sizeof(float), numel * sizeof(float));
}

void narrow(const float* values, std::uint64_t numel, std::byte* array, std::uint64_t first) {
  for (std::uint64_t i = 0; i < numel; ++i) {
    const bf16 value = to_bf16(values[i]);
    std::memcpy(array + (first + i) * sizeof value, &value, sizeof value);
  }
}

// One quantisation block, or what there is of it, as an update would keep it.
void quantise(std::span<const float> values, bool squared, std::byte* codes, float& scale) {
  const auto kept = [&](float value) { return squared ? std::sqrt(value) : value; };
  float largest = 0;
  for (const float value : values)
    if (const float magnitude = std::fabs(kept(value)); magnitude > largest) largest = magnitude;
  scale = stored_scale(largest, squared);
  const float inverse = inverse_scale(scale);
  constexpr std::uint32_t half = 0x8000;  // in the place of random bits: the nearest code
  for (const float value : values)
    *codes++ = static_cast<std::byte>(squared ? encode_root(kept(value), inverse, half)
                                              : encode_signed(value, inverse, half));
}

}  // namespace

std::string_view name_of(MomentDType dtype) {
  constexpr std::string_view names[] = {"fp32", "bf16", "int8"};
  return names[static_cast<std::size_t>(dtype)];
}

std::string_view name_of(MasterDType dtype) {
  constexpr std::string_view names[] = {"fp32", "bf16", "none"};
  return names[static_cast<std::size_t>(dtype)];
}

StateFormat format_of(const OptimizerArguments& arguments, MasterDType master, MomentDType moments) {
  return {.kind = arguments.kind,
          .amsgrad = arguments.kind == OptimizerKind::adam && arguments.amsgrad,
          .momentum = arguments.kind == OptimizerKind::sgd && arguments.momentum != 0,
          .master = master,
          .moments = moments};
}

std::string optimizer_text(const StateFormat& format) {
  const std::string_view kind = format.kind == OptimizerKind::adam ? "adamw or adam" : name_of(format.kind);
  return fmt::format("{}{}{}", kind, format.amsgrad ? " with amsgrad" : "",
                     format.momentum ? " with momentum" : "");
}

std::string text_of(const StateFormat& format) {
  const std::string master = format.master == MasterDType::none
                                 ? "parameters as the master"
                                 : fmt::format("{} master", name_of(format.master));
  const std::string moments =
      moment_count(format) == 0 ? "no moments" : fmt::format("{} moments", name_of(format.moments));
  return fmt::format("{}, {}, {}", optimizer_text(format), master, moments);
}

Moment moment_of(const StateFormat& format, int index) {
  constexpr Moment adam[] = {{"exp_avg", false}, {"exp_avg_sq", true}, {"max_exp_avg_sq", true}};
  HEADRACE_CHECK(index >= 0 && index < moment_count(format), "moment {} of {}", index, name_of(format.kind));
  switch (format.kind) {
    case OptimizerKind::adagrad:
      return {"sum", true};
    case OptimizerKind::sgd:
      return {"momentum_buffer", false};
    case OptimizerKind::adam:
    case OptimizerKind::lion:
      break;
  }
  return adam[index];
}

Bytes state_bytes(const StateFormat& format, std::uint64_t numel) {
  const Bytes moment = value_bytes(format.moments, numel) + scale_bytes(format.moments, numel);
  return master_bytes(format.master, numel) + static_cast<Bytes>(moment_count(format)) * moment;
}

StateArrays state_arrays(const StateFormat& format, std::byte* memory, std::uint64_t numel) {
  StateArrays arrays;
  if (format.master != MasterDType::none) arrays.master = memory;
  std::byte* next = memory + master_bytes(format.master, numel);
  for (int m = 0; m < moment_count(format); ++m) {
    MomentArray& moment = arrays.moments[static_cast<std::size_t>(m)];
    moment.values = next;
    next += value_bytes(format.moments, numel);
    if (format.moments == MomentDType::int8) moment.scales = reinterpret_cast<float*>(next);
    next += scale_bytes(format.moments, numel);
  }
  return arrays;
}

void read_master(MasterDType dtype, const std::byte* master, std::uint64_t first, std::uint64_t numel,
                 float* out) {
  if (dtype == MasterDType::bf16) return widen<bf16>(master, first, numel, out);
  copy_fp32(master, first, numel, out);
}

void read_moment(const StateFormat& format, int index, const MomentArray& array, std::uint64_t first,
                 std::uint64_t numel, float* out) {
  if (format.moments == MomentDType::f32) return copy_fp32(array.values, first, numel, out);
  if (format.moments == MomentDType::bf16) return widen<bf16>(array.values, first, numel, out);
  HEADRACE_CHECK(first % quantised_block_numel == 0, "element {} starts no quantisation block", first);
  const bool squared = moment_of(format, index).squared;
  for (std::uint64_t i = first; i < first + numel; ++i) {
    const auto code = static_cast<std::uint8_t>(array.values[i]);
    const float scale = array.scales[i / quantised_block_numel];
    *out++ = squared ? decode_squared(code, scale) : decode_signed(code, scale);
  }
}

void write_master(MasterDType dtype, std::byte* master, std::uint64_t first, std::uint64_t numel,
                  const float* values) {
  if (dtype == MasterDType::bf16) return narrow(values, numel, master, first);
  std::memcpy(master + first * sizeof(float), values, numel * sizeof(float));
}

void write_moment(const StateFormat& format, int index, const MomentArray& array, std::uint64_t first,
                  std::uint64_t numel, const float* values) {
  if (format.moments == MomentDType::f32)
    return write_master(MasterDType::f32, array.values, first, numel, values);
  if (format.moments == MomentDType::bf16) return narrow(values, numel, array.values, first);
  HEADRACE_CHECK(first % quantised_block_numel == 0, "element {} starts no quantisation block", first);
  const bool squared = moment_of(format, index).squared;
  for (std::uint64_t done = 0; done < numel; done += quantised_block_numel)
    quantise({values + done, std::min(quantised_block_numel, numel - done)}, squared,
             array.values + first + done, array.scales[(first + done) / quantised_block_numel]);
}

}  // namespace headrace
