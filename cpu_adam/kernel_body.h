// The kernels, written once over a vector type V and compiled once per instruction set (kernels_*.cpp).
//
// V is a struct in the unnamed namespace of its file: every function here is a template on it, so that
// nothing compiled with wide instructions has a name the linker could merge with another file's. For the same
// reason nothing of the standard library is called. V offers:
//   width, Floats, set, load, store, add, sub, mul, div, sqrt, fma(a, b, c) = a * b + c, each correctly
//   rounded rounded<T>(x)   x rounded to T, still in fp32 lanes; store(bf16*) takes only such values
//   SquareSums      norm_lanes fp64 sums: add(group, x) adds the squares of elements group * width ... ;
//   lane(i)
// Loads and stores take an extent: Whole vectors, or only the First n lanes (loads fill the others with 0).
#pragma once

#include <cstdint>
#include <type_traits>

#include "cpu_adam/kernel_table.h"
#include "headrace/kernels.h"

namespace headrace {
namespace {

inline constexpr int norm_lanes = 32;

struct Whole {};
struct First {
  std::uint64_t n;
};

// Calls body(i, extent) for every vector of [begin, numel), the last one partial when numel is no multiple.
template <class V, class Body>
[[gnu::always_inline]] inline void for_each_vector(std::uint64_t begin, std::uint64_t numel, Body&& body) {
  std::uint64_t i = begin;
  for (; i + V::width <= numel; i += V::width) body(i, Whole{});
  if (i < numel) body(i, First{numel - i});
}

// The hardware prefetchers start anew at each 4 KiB page of every stream; asking this far ahead hides that
// (measured: about 10% of an update of 2^24 elements). Past the end of an array it is a hint without effect.
inline constexpr std::uint64_t prefetch_numel = 256;

template <class V, class... T>
[[gnu::always_inline]] inline void prefetch(const T*... at) {
  if constexpr (V::width > 1) (__builtin_prefetch(at + prefetch_numel), ...);
}

// ---- Adam

template <class V>
struct AdamFactors {
  typename V::Floats gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  typename V::Divisor sqrt_bias2;
  typename V::Floats epsilon;
  typename V::Floats coupled_decay, decay, step_size;

  [[gnu::always_inline]] explicit AdamFactors(const UpdateConstants& c)
      : gradient_scale(V::set(c.gradient_scale)),
        beta1(V::set(c.beta1)),
        one_minus_beta1(V::set(c.one_minus_beta1)),
        beta2(V::set(c.beta2)),
        one_minus_beta2(V::set(c.one_minus_beta2)),
        sqrt_bias2(V::set_divisor(c.sqrt_bias2)),
        epsilon(V::set(c.epsilon)),
        coupled_decay(V::set(c.coupled_decay)),
        decay(V::set(c.decay)),
        step_size(V::set(c.step_size)) {}
};

// Low is void when there is no low-precision output.
template <class V, class Gradient, class Low, bool coupled>
void adam_typed(const AdamBlock& block, const UpdateConstants& constants) {
  float* const master = block.master;
  float* const exp_avg = block.exp_avg;
  float* const exp_avg_sq = block.exp_avg_sq;
  const auto* const gradient = static_cast<const Gradient*>(block.gradient);
  auto* const low = static_cast<Low*>(block.low_precision);
  const AdamFactors<V> k(constants);

  for_each_vector<V>(
      0, block.numel, [&](std::uint64_t i, auto extent) __attribute__((always_inline)) {
        prefetch<V>(master + i, exp_avg + i, exp_avg_sq + i, gradient + i);
        auto p = V::load(master + i, extent);
        auto g = V::mul(V::load(gradient + i, extent), k.gradient_scale);
        if constexpr (coupled) g = V::fma(k.coupled_decay, p, g);
        const auto m = V::fma(k.beta1, V::load(exp_avg + i, extent), V::mul(k.one_minus_beta1, g));
        const auto v =
            V::fma(k.beta2, V::load(exp_avg_sq + i, extent), V::mul(V::mul(k.one_minus_beta2, g), g));
        const auto d = V::add(V::div(V::sqrt(v), k.sqrt_bias2), k.epsilon);
        p = V::sub(V::mul(p, k.decay), V::mul(k.step_size, V::div(m, d)));
        V::store(exp_avg + i, m, extent);
        V::store(exp_avg_sq + i, v, extent);
        V::store(master + i, p, extent);
        if constexpr (!std::is_void_v<Low>) V::store(low + i, V::template rounded<Low>(p), extent);
      });
}

// Calls body<Gradient, Low>() with the element types of the block.
template <class Body>
[[gnu::always_inline]] inline void with_types(const AdamBlock& block, Body&& body) {
  const auto with_low = [&]<class Gradient>() __attribute__((always_inline)) {
    if (block.low_precision == nullptr) {
      body.template operator()<Gradient, void>();
    } else if (block.low_precision_dtype == DType::bf16) {
      body.template operator()<Gradient, bf16>();
    } else {
      body.template operator()<Gradient, float>();
    }
  };
  if (block.gradient_dtype == DType::bf16) {
    with_low.template operator()<bf16>();
  } else {
    with_low.template operator()<float>();
  }
}

template <class V>
void adam(const AdamBlock& block, const UpdateConstants& constants) {
  with_types(
      block, [&]<class Gradient, class Low>() __attribute__((always_inline)) {
        if (constants.coupled_decay != 0.0f) {
          adam_typed<V, Gradient, Low, true>(block, constants);
        } else {
          adam_typed<V, Gradient, Low, false>(block, constants);
        }
      });
}

template <class V, class Gradient, class Low>
void adam_ceiling_typed(const AdamBlock& block) {
  const auto* const gradient = static_cast<const Gradient*>(block.gradient);
  auto* const low = static_cast<Low*>(block.low_precision);
  for_each_vector<V>(
      0, block.numel, [&](std::uint64_t i, auto extent) __attribute__((always_inline)) {
        const auto g = V::load(gradient + i, extent);
        const auto p = V::add(V::load(block.master + i, extent), g);
        V::store(block.exp_avg + i, V::add(V::load(block.exp_avg + i, extent), g), extent);
        V::store(block.exp_avg_sq + i, V::add(V::load(block.exp_avg_sq + i, extent), g), extent);
        V::store(block.master + i, p, extent);
        if constexpr (!std::is_void_v<Low>) V::store(low + i, p, extent);
      });
}

template <class V>
void adam_ceiling(const AdamBlock& block) {
  with_types(
      block, [&]<class Gradient, class Low>()
                 __attribute__((always_inline)) { adam_ceiling_typed<V, Gradient, Low>(block); });
}

// ---- Sums over ranks

// Vectors [i, i + unroll) of the sum: every load of them precedes their stores, so `sum` may be one of the
// slices.
template <class V, int unroll, class T, class Extent>
[[gnu::always_inline]] inline void sum_at(const T* const* slices, std::uint64_t slice_count, std::uint64_t i,
                                          float* sum, bool accumulate, Extent extent) {
  typename V::Floats s[unroll];
  for (int j = 0; j < unroll; ++j) {
    s[j] = slice_count == 0 ? V::set(0.0f) : V::load(slices[0] + i + j * V::width, extent);
  }
  for (std::uint64_t r = 1; r < slice_count; ++r) {
    for (int j = 0; j < unroll; ++j) s[j] = V::add(s[j], V::load(slices[r] + i + j * V::width, extent));
  }
  for (int j = 0; j < unroll; ++j) {
    float* const at = sum + i + j * V::width;
    V::store(at, accumulate ? V::add(V::load(at, extent), s[j]) : s[j], extent);
  }
}

template <class V, class T>
void sum_typed(const T* const* slices, std::uint64_t slice_count, std::uint64_t numel, float* sum,
               bool accumulate) {
  constexpr int unroll = 4;
  const std::uint64_t unrolled_numel = numel - numel % (unroll * V::width);
  for (std::uint64_t i = 0; i < unrolled_numel; i += unroll * V::width) {
    sum_at<V, unroll>(slices, slice_count, i, sum, accumulate, Whole{});
  }
  for_each_vector<V>(
      unrolled_numel, numel, [&](std::uint64_t i, auto extent) __attribute__((always_inline)) {
        sum_at<V, 1>(slices, slice_count, i, sum, accumulate, extent);
      });
}

template <class V>
void sum_slices(const void* const* slices, std::uint64_t slice_count, DType dtype, std::uint64_t numel,
                float* sum, bool accumulate) {
  if (dtype == DType::bf16) {
    sum_typed<V>(reinterpret_cast<const bf16* const*>(slices), slice_count, numel, sum, accumulate);
  } else {
    sum_typed<V>(reinterpret_cast<const float* const*>(slices), slice_count, numel, sum, accumulate);
  }
}

// ---- Rounding and norms

// [Note: order of a squared norm] Within a chunk, fp64 lane l of norm_lanes adds the squares of elements l, l
// + norm_lanes, l + 2 * norm_lanes, ... in that order (a square of an fp32 value is exact in fp64, so fma or
// multiply-and-add is the same). Then lane[l] += lane[l + half] for half = norm_lanes/2, ..., 2, 1; lane[0]
// is the partial. A warp per chunk does the same with shuffles. Lanes past the end of the last chunk add +0,
// which changes no sum of squares.
template <class V>
[[gnu::always_inline]] inline double total(const typename V::SquareSums& sums) {
  double lane[norm_lanes];
  for (int l = 0; l < norm_lanes; ++l) lane[l] = sums.lane(l);
  for (int half = norm_lanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
  }
  return lane[0];
}

// One chunk of at most norm_chunk_numel elements.
template <class V, class T>
double round_chunk(const float* sum, T* rounded, std::uint64_t numel) {
  constexpr int groups = norm_lanes / V::width;
  typename V::SquareSums squares;
  const std::uint64_t grouped_numel = numel - numel % norm_lanes;
  for (std::uint64_t i = 0; i < grouped_numel; i += norm_lanes) {
    for (int group = 0; group < groups; ++group) {
      const std::uint64_t at = i + group * V::width;
      const auto x = V::template rounded<T>(V::load(sum + at, Whole{}));
      V::store(rounded + at, x, Whole{});
      squares.add(group, x);
    }
  }
  for_each_vector<V>(
      grouped_numel, numel, [&](std::uint64_t i, auto extent) __attribute__((always_inline)) {
        const auto x = V::template rounded<T>(V::load(sum + i, extent));
        V::store(rounded + i, x, extent);
        squares.add(static_cast<int>((i - grouped_numel) / V::width), x);
      });
  return total<V>(squares);
}

template <class V, class T>
void round_and_norm_typed(const float* sum, T* rounded, std::uint64_t numel, double* partials) {
  for (std::uint64_t begin = 0; begin < numel; begin += norm_chunk_numel) {
    const std::uint64_t left = numel - begin;
    const std::uint64_t chunk_numel = left < norm_chunk_numel ? left : norm_chunk_numel;
    *partials++ = round_chunk<V>(sum + begin, rounded + begin, chunk_numel);
  }
}

template <class V>
void round_and_norm(const float* sum, void* rounded, DType dtype, std::uint64_t numel, double* partials) {
  if (dtype == DType::bf16) {
    round_and_norm_typed<V>(sum, static_cast<bf16*>(rounded), numel, partials);
  } else {
    round_and_norm_typed<V>(sum, static_cast<float*>(rounded), numel, partials);
  }
}

template <class V, class T>
void round_typed(const float* high, T* low, std::uint64_t numel) {
  for_each_vector<V>(
      0, numel, [&](std::uint64_t i, auto extent) __attribute__((always_inline)) {
        V::store(low + i, V::template rounded<T>(V::load(high + i, extent)), extent);
      });
}

template <class V>
void round_to(const float* high, void* low, DType dtype, std::uint64_t numel) {
  if (dtype == DType::bf16) {
    round_typed<V>(high, static_cast<bf16*>(low), numel);
  } else {
    round_typed<V>(high, static_cast<float*>(low), numel);
  }
}

template <class V>
constexpr KernelTable table_of = {adam<V>, adam_ceiling<V>, sum_slices<V>, round_and_norm<V>, round_to<V>};

}  // namespace
}  // namespace headrace
