#include "src/bench/update_tensors.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "headrace/cpu_pool.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

constexpr Bytes array_alignment = 64;

constexpr std::array formats = {
    UpdateFormat{"fp32", MasterDType::none, MomentDType::f32, DType::f32, DType::f32, std::nullopt},
    UpdateFormat{"bf16", MasterDType::f32, MomentDType::f32, DType::bf16, DType::bf16, DType::bf16},
    UpdateFormat{"fp16", MasterDType::f32, MomentDType::f32, DType::f16, DType::f16, DType::f16},
    UpdateFormat{"bf16-moments", MasterDType::f32, MomentDType::bf16, DType::bf16, DType::bf16, DType::bf16},
    UpdateFormat{"int8-moments", MasterDType::f32, MomentDType::int8, DType::bf16, DType::bf16, DType::bf16},
    UpdateFormat{"bf16-master", MasterDType::none, MomentDType::f32, DType::bf16, DType::bf16, std::nullopt},
    UpdateFormat{"bf16-all", MasterDType::none, MomentDType::bf16, DType::bf16, DType::bf16, std::nullopt},
};

struct NamedOptimizer {
  std::string_view name;
  OptimizerArguments arguments;
};
const std::array optimizers = {
    NamedOptimizer{"adamw", {.weight_decay = 0.01}},
    NamedOptimizer{"adam", {.weight_decay = 0.01, .decoupled = false}},
    NamedOptimizer{"amsgrad", {.weight_decay = 0.01, .amsgrad = true}},
    NamedOptimizer{"adagrad", {.kind = OptimizerKind::adagrad, .learning_rate = 1e-2}},
    NamedOptimizer{"lion", {.kind = OptimizerKind::lion, .learning_rate = 1e-4, .beta2 = 0.99}},
    NamedOptimizer{"sgd", {.kind = OptimizerKind::sgd, .learning_rate = 1e-3, .momentum = 0.9}},
};

template <class Named>
const Named& named(std::span<const Named> all, std::string_view name, std::string_view kind) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Named& one) { return one.name == name; });
  if (found != all.end()) return *found;
  std::string names;
  for (const Named& one : all) names += fmt::format("{}{}", names.empty() ? "" : ", ", one.name);
  throw UsageError(fmt::format("\"{}\" is no {} of bench adam; it has {}.", name, kind, names));
}

template <class Named>
std::vector<std::string_view> names_of(std::span<const Named> all) {
  std::vector<std::string_view> names;
  for (const Named& one : all) names.push_back(one.name);
  return names;
}

// Where the arrays of a tensor start in its memory.
struct Offsets {
  Bytes parameters = 0, gradient = 0, low_precision = 0, end = 0;  // states at 0
};
Offsets offsets_of(const UpdateCase& one, std::uint64_t numel) {
  Offsets at;
  const auto behind = [](Bytes start, Bytes bytes) { return round_up(start + bytes, array_alignment); };
  at.parameters = behind(0, state_bytes(one.states(), numel));
  const bool own_master = one.format.master == MasterDType::none;
  at.gradient = behind(at.parameters, own_master ? numel * size_of(one.format.parameters) : 0);
  at.low_precision = behind(at.gradient, numel * size_of(one.format.gradient));
  at.end =
      behind(at.low_precision, one.format.low_precision ? numel * size_of(*one.format.low_precision) : 0);
  return at;
}

// Calls visit(block's first element in its tensor, its elements) for each block of a tensor.
template <class Visit>
void for_each_block(const UpdateCase& one, const Visit& visit) {
  for (std::uint64_t first = 0; first < one.shape.numel; first += largest_block_numel)
    visit(first, std::min(largest_block_numel, one.shape.numel - first));
}

// Values between low and high as `dtype`, in bytes.
std::vector<std::byte> pattern_of(DType dtype, float low, float high) {
  std::vector<std::byte> pattern(pattern_numel * size_of(dtype));
  for (std::uint64_t i = 0; i < pattern_numel; ++i) {
    const float x = low + (high - low) * static_cast<float>(i * 2654435761u % 1024) / 1024.0f;
    set_element(pattern.data(), i, dtype, x);
  }
  return pattern;
}

std::vector<std::byte> code_pattern() {
  std::vector<std::byte> pattern(pattern_numel);
  for (std::uint64_t i = 0; i < pattern_numel; ++i) pattern[i] = static_cast<std::byte>(40 + i * 7 % 80);
  return pattern;
}

void repeat(const std::vector<std::byte>& pattern, void* memory, Bytes bytes) {
  for (Bytes at = 0; at < bytes; at += pattern.size())
    std::memcpy(static_cast<std::byte*>(memory) + at, pattern.data(), std::min(pattern.size(), bytes - at));
}

// Patterns of the arrays of a case.
struct Patterns {
  explicit Patterns(const UpdateCase& one)
      : master(
            pattern_of(one.format.master == MasterDType::f32 ? DType::f32 : one.format.parameters, 0.1f, 1)),
        gradient(pattern_of(one.format.gradient, 0.001f, 0.01f)),
        scales(pattern_of(DType::f32, 0.01f, 0.01f)) {
    const MomentDType moments = one.format.moments;
    const DType values = moments == MomentDType::f32 ? DType::f32 : DType::bf16;
    moment = moments == MomentDType::int8 ? code_pattern() : pattern_of(values, 0.001f, 0.01f);
  }
  std::vector<std::byte> master, moment, gradient, scales;

  void fill(const UpdateSpan& part) const {
    const std::uint64_t numel = part.numel;
    repeat(master, part.state.master, numel * (master.size() / pattern_numel));
    for (int k = 0; k < moment_count(part.format); ++k) {
      const MomentArray& array = part.state.moments[static_cast<std::size_t>(k)];
      repeat(moment, array.values, numel * (moment.size() / pattern_numel));
      if (array.scales != nullptr)
        repeat(scales, array.scales, divide_up(numel, quantised_block_numel) * sizeof(float));
    }
    repeat(gradient, const_cast<void*>(part.gradient), numel * (gradient.size() / pattern_numel));
    if (part.low_precision != nullptr)
      std::memset(part.low_precision, 0, numel * size_of(part.low_precision_dtype));
  }
};

}  // namespace

const UpdateFormat& update_format(std::string_view name) {
  return named(std::span<const UpdateFormat>(formats), name, "format");
}

OptimizerArguments update_arguments(std::string_view optimizer) {
  return named(std::span<const NamedOptimizer>(optimizers), optimizer, "optimizer").arguments;
}

std::vector<std::string_view> adam_bench_formats() {
  return names_of(std::span<const UpdateFormat>(formats));
}

std::vector<std::string_view> adam_bench_optimizers() {
  return names_of(std::span<const NamedOptimizer>(optimizers));
}

Bytes tensor_bytes(const UpdateCase& one) {
  Bytes bytes = 0;
  for_each_block(one, [&](std::uint64_t, std::uint64_t numel) { bytes += offsets_of(one, numel).end; });
  return one.shape.tensors * bytes;
}

double ideal_bytes_per_element(const UpdateCase& one) {
  constexpr std::uint64_t numel = quantised_block_numel;
  Bytes bytes = 2 * state_bytes(one.states(), numel);
  if (one.format.master == MasterDType::none) bytes += 2 * numel * size_of(one.format.parameters);
  bytes += numel * size_of(one.format.gradient);
  if (one.format.low_precision) bytes += numel * size_of(*one.format.low_precision);
  return static_cast<double>(bytes) / static_cast<double>(numel);
}

std::vector<GroupSpan> lay_out(const UpdateCase& one, std::span<std::byte> memory) {
  HEADRACE_CHECK(memory.size() >= tensor_bytes(one), "{} of memory for {}", memory.size(), tensor_bytes(one));
  std::vector<GroupSpan> blocks;
  std::byte* start = memory.data();
  for (std::uint64_t t = 0; t < one.shape.tensors; ++t)
    for_each_block(one, [&](std::uint64_t first, std::uint64_t numel) {
      const Offsets at = offsets_of(one, numel);
      UpdateSpan& span = blocks.emplace_back().span;
      span.format = one.states();
      span.state = state_arrays(span.format, start, numel);
      if (one.format.master == MasterDType::none) span.state.master = start + at.parameters;
      span.parameter_dtype = one.format.parameters;
      span.gradient = start + at.gradient;
      span.gradient_dtype = one.format.gradient;
      if (one.format.low_precision) {
        span.low_precision = start + at.low_precision;
        span.low_precision_dtype = *one.format.low_precision;
      }
      span.numel = numel;
      span.first_element = t * one.shape.numel + first;
      start += at.end;
    });
  return blocks;
}

std::vector<std::span<std::byte>> arrays_of(const UpdateSpan& span) {
  std::vector<std::span<std::byte>> arrays;
  const std::uint64_t numel = span.numel;
  arrays.emplace_back(span.state.master, numel * size_of(master_dtype(span)));
  for (int k = 0; k < moment_count(span.format); ++k) {
    const MomentArray& moment = span.state.moments[static_cast<std::size_t>(k)];
    arrays.emplace_back(moment.values, numel * size_of(span.format.moments));
    if (moment.scales != nullptr)
      arrays.emplace_back(reinterpret_cast<std::byte*>(moment.scales),
                          numel / quantised_block_numel * sizeof(float));
  }
  auto* const gradient = static_cast<std::byte*>(const_cast<void*>(span.gradient));
  arrays.emplace_back(gradient, numel * size_of(span.gradient_dtype));
  if (span.low_precision != nullptr)
    arrays.emplace_back(static_cast<std::byte*>(span.low_precision),
                        numel * size_of(span.low_precision_dtype));
  return arrays;
}

std::vector<NodeRun> node_runs(const UpdateCase& one, std::span<std::byte> memory,
                               const std::vector<NodeThreads>& placement) {
  constexpr std::uint64_t many = 64;
  if (placement.empty()) return {};
  const std::vector<GroupSpan> blocks = lay_out(one, memory);
  if (blocks.size() >= many) {
    std::vector<Bytes> bytes;
    for (const GroupSpan& block : blocks) bytes.push_back(offsets_of(one, block.span.numel).end);
    return deal_blocks(placement, bytes);
  }
  std::vector<NodeRun> runs;
  for (const GroupSpan& block : blocks)
    for (const std::span<std::byte> array : arrays_of(block.span)) {
      const auto begin = static_cast<Bytes>(array.data() - memory.data());
      for (const NodeRun& run : divide_array(placement, array.size()))
        runs.push_back({.node = run.node, .begin = begin + run.begin, .end = begin + run.end});
    }
  return runs;
}

void fill(const UpdateCase& one, std::span<const GroupSpan> blocks) {
  const Patterns patterns(one);
  parallel_ranges(blocks.size(), 1, [&](std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t b = begin; b < end; ++b) patterns.fill(blocks[b].span);
  });
}

}  // namespace headrace
