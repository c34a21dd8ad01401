// Element types in memory, fp32 in registers: conversions to nearest even that keep denormals and NaN, and
// loads and stores of n consecutive elements at once.
#pragma once

#include <bit>
#include <type_traits>

#include "gpu/kernel_language.h"
#include "headrace/dtype.h"

namespace headrace {

// The bits of to_float and to_bf16 (headrace/dtype.h): the toolkit's own conversion turns every NaN into one.
__host__ __device__ inline float to_fp32(float x) {
  return x;
}
__host__ __device__ inline float to_fp32(__nv_bfloat16 x) {
  return to_float(bf16{static_cast<__nv_bfloat16_raw>(x).x});
}
__host__ __device__ inline float to_fp32(__half x) {
  return __half2float(x);
}

template <class T>
__host__ __device__ T from_fp32(float x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __nv_bfloat16_raw{to_bf16(x).bits};
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    static_assert(std::is_same_v<T, float>);
    return x;
  }
}

// Calls body(T{}) with the element type that `dtype` names.
template <class Body>
void with_element(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::bf16:
      return body(__nv_bfloat16{});
    case DType::f16:
      return body(__half{});
  }
}

// An operand's bytes as its elements.
template <class T>
const T* elements(const std::byte* data) {
  return reinterpret_cast<const T*>(data);
}
template <class T>
T* elements(std::byte* data) {
  return reinterpret_cast<T*>(data);
}

// n values in registers.
template <int n>
struct Floats {
  float at[n];
  __device__ float& operator[](int i) { return at[i]; }
  __device__ float operator[](int i) const { return at[i]; }
};
template <int n>
__device__ Floats<n> all(float value) {
  Floats<n> values;
  for (int k = 0; k < n; ++k) values[k] = value;
  return values;
}

// Elements of one 16-byte load of T. A pass over several types goes by the widest.
template <class T, class... More>
inline constexpr int vector_numel_of = 16 / sizeof(T);
template <class T, class U, class... More>
inline constexpr int vector_numel_of<T, U, More...> =
    vector_numel_of<T> < vector_numel_of<U, More...> ? vector_numel_of<T> : vector_numel_of<U, More...>;

namespace detail {

// n elements in one memory access. The same memory is elsewhere accessed one by one.
template <class T, int n>
struct [[gnu::may_alias]] alignas(n * sizeof(T)) Elements {
  T at[n];
};

}  // namespace detail

// Elements at[0] ... at[n - 1]. n > 1: `at` is aligned to the n elements, which are at most 16 bytes.
template <int n, class T>
__device__ Floats<n> load(const T* at) {
  Floats<n> values;
  if constexpr (n == 1) {
    values[0] = to_fp32(*at);
  } else {
    const auto elements = *reinterpret_cast<const detail::Elements<T, n>*>(at);
    for (int k = 0; k < n; ++k) values[k] = to_fp32(elements.at[k]);
  }
  return values;
}

template <int n, class T>
__device__ void store(T* at, const Floats<n>& values) {
  if constexpr (n == 1) {
    *at = from_fp32<T>(values[0]);
  } else {
    detail::Elements<T, n> elements;
    for (int k = 0; k < n; ++k) elements.at[k] = from_fp32<T>(values[k]);
    *reinterpret_cast<detail::Elements<T, n>*>(at) = elements;
  }
}

// The first `count` of n elements, the others `fill`; all at once where `aligned` allows it.
template <int n, class T>
__device__ Floats<n> load_some(const T* at, std::int64_t count, bool aligned, float fill = 0.0f) {
  if (aligned && count >= n) return load<n>(at);
  Floats<n> values;
  for (int k = 0; k < n; ++k) values[k] = k < count ? to_fp32(at[k]) : fill;
  return values;
}
template <int n, class T>
__device__ void store_some(T* at, const Floats<n>& values, std::int64_t count, bool aligned) {
  if (aligned && count >= n) {
    store<n>(at, values);
  } else {
    for (int k = 0; k < n; ++k)
      if (k < count) at[k] = from_fp32<T>(values[k]);
  }
}

// Whether n elements of each array fit loads of their own size. Null arrays do.
template <int n, class... T>
bool aligned_for(const T*... arrays) {
  return ((reinterpret_cast<std::uintptr_t>(arrays) % (n * sizeof(T)) == 0) && ...);
}

}  // namespace headrace
