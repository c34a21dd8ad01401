// Sums over ranks, rounding and squared norms, written over a vector type V (vector_scalar.h).
#pragma once

#include <cstdint>

#include "cpu_adam/extent.h"
#include "cpu_adam/kernel_table.h"
#include "cpu_adam/rounding.h"
#include "headrace/kernels.h"

namespace headrace {
namespace {

// Calls body(i, extent) for every vector of [begin, numel), the last one partial when numel is no multiple.
template <class V, class Body>
[[gnu::always_inline]] inline void for_each_vector(std::uint64_t begin, std::uint64_t numel, Body&& body) {
  std::uint64_t i = begin;
  for (; i + V::width <= numel; i += V::width) body(i, Whole{});
  if (i < numel) body(i, First{numel - i});
}

// Calls body<T>() with an element type.
template <class Body>
[[gnu::always_inline]] inline void with_type(DType dtype, const Body& body) {
  if (dtype == DType::bf16) return body.template operator()<bf16>();
  if (dtype == DType::f16) return body.template operator()<fp16>();
  body.template operator()<float>();
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
    for (int j = 0; j < unroll; ++j) s[j] = s[j] + V::load(slices[r] + i + j * V::width, extent);
  }
  for (int j = 0; j < unroll; ++j) {
    float* const at = sum + i + j * V::width;
    V::store(at, accumulate ? V::load(at, extent) + s[j] : s[j], extent);
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
  with_type(
      dtype, [&]<class T>() __attribute__((always_inline)) {
        sum_typed<V>(reinterpret_cast<const T* const*>(slices), slice_count, numel, sum, accumulate);
      });
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
      const auto x = nearest<V, T>(V::load(sum + at, Whole{}));
      V::store(rounded + at, x, Whole{});
      squares.add(group, x);
    }
  }
  for_each_vector<V>(
      grouped_numel, numel, [&](std::uint64_t i, auto extent) __attribute__((always_inline)) {
        const auto x = nearest<V, T>(V::load(sum + i, extent));
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
  with_type(
      dtype, [&]<class T>() __attribute__((always_inline)) {
        round_and_norm_typed<V>(sum, static_cast<T*>(rounded), numel, partials);
      });
}

template <class V, class T>
void round_typed(const float* high, T* low, std::uint64_t numel) {
  for_each_vector<V>(
      0, numel, [&](std::uint64_t i, auto extent) __attribute__((always_inline)) {
        V::store(low + i, nearest<V, T>(V::load(high + i, extent)), extent);
      });
}

template <class V>
void round_to(const float* high, void* low, DType dtype, std::uint64_t numel) {
  with_type(
      dtype, [&]<class T>()
                 __attribute__((always_inline)) { round_typed<V>(high, static_cast<T*>(low), numel); });
}

}  // namespace
}  // namespace headrace
