// One update of a span in one pass over memory, written over a vector type V (vector_scalar.h), a rule
// (update_rules.h) and the element types of master and moments. The types of gradient and output are branches
// that always go the same way: templates on them too would be twelve times the code and no faster.
#pragma once

#include "cpu_adam/codes.h"
#include "cpu_adam/kernel_table.h"
#include "cpu_adam/rounding.h"
#include "cpu_adam/update_rules.h"

namespace headrace {
namespace {

// The hardware prefetchers start anew at each 4 KiB page of every stream; asking this far ahead hides that
// (measured: about 10% of an update of 2^24 elements). Past the end of an array it is a hint without effect.
inline constexpr std::uint64_t prefetch_numel = 256;

template <class V, class T>
[[gnu::always_inline]] inline void prefetch(const T* at) {
  if constexpr (V::width > 1) __builtin_prefetch(at + prefetch_numel);
}

template <class V>
[[gnu::always_inline]] inline typename V::Floats load_as(DType dtype, const void* from, std::uint64_t i) {
  if (dtype == DType::bf16) return V::load(static_cast<const bf16*>(from) + i, Whole{});
  if (dtype == DType::f16) return V::load(static_cast<const fp16*>(from) + i, Whole{});
  return V::load(static_cast<const float*>(from) + i, Whole{});
}

template <class V, class T>
[[gnu::always_inline]] inline void store_low(T* to, typename V::Floats x, Stores stores) {
  if constexpr (std::is_same_v<T, bf16>) x = nearest_upper<V>(x);
  if (stores == Stores::streaming) return V::stream(to, x);
  V::store(to, x, Whole{});
}

template <class V>
[[gnu::always_inline]] inline void store_as(DType dtype, void* to, std::uint64_t i, typename V::Floats x,
                                            Stores stores) {
  if (dtype == DType::bf16) return store_low<V>(static_cast<bf16*>(to) + i, x, stores);
  if (dtype == DType::f16) return store_low<V>(static_cast<fp16*>(to) + i, x, stores);
  V::store(static_cast<float*>(to) + i, x, Whole{});
}

// What an update reads and writes besides the moments. Master is float, or bf16 rounded stochastically.
template <class V, class Rule, class Master>
struct Parameters {
  static constexpr bool random = std::is_same_v<Master, bf16>;

  Factors<V> factors;
  Master* master;
  const void* gradient;
  void* low;
  DType gradient_dtype, low_dtype;
  Stores stores;

  [[gnu::always_inline]] Parameters(const UpdateSpan& span, const UpdateConstants& constants, Stores how)
      : factors(constants),
        master(reinterpret_cast<Master*>(span.state.master)),
        gradient(span.gradient),
        low(span.low_precision),
        gradient_dtype(span.gradient_dtype),
        low_dtype(span.low_precision_dtype),
        stores(how) {}

  [[gnu::always_inline]] void prefetch_at(std::uint64_t i) const {
    prefetch<V>(master + i);
    prefetch<V>(static_cast<const std::byte*>(gradient) + i * size_of(gradient_dtype));
  }

  // Elements [i, i + V::width), with their moments in `m`; `more` are their more_bits.
  [[gnu::always_inline]] void update(std::uint64_t i, Moments<V>& m, typename V::Integers more) const {
    auto p = V::load(master + i, Whole{});
    const auto g = factors.gradient(load_as<V>(gradient_dtype, gradient, i), p);
    p = Rule::template parameters<V>(factors, p, g, m);
    if constexpr (random) p = upper_half<V>(stochastic_upper<V>(p, more & 0xffffu));
    V::store(master + i, p, Whole{});
    if (low != nullptr) store_as<V>(low_dtype, low, i, p, stores);
  }
};

// Calls body<k>() for each moment of the rule.
template <class Rule, class Body>
[[gnu::always_inline]] inline void for_each_moment(const Body& body) {
  if constexpr (Rule::moments > 0) body.template operator()<0>();
  if constexpr (Rule::moments > 1) body.template operator()<1>();
  if constexpr (Rule::moments > 2) body.template operator()<2>();
}

// Moments of type T: float, or bf16 rounded stochastically. One vector at a time.
template <class V, class Rule, class Master, class T>
void update_vectors(const UpdateSpan& span, const UpdateConstants& constants, Stores stores) {
  constexpr bool random_moments = std::is_same_v<T, bf16> && Rule::moments > 0;
  const Parameters<V, Rule, Master> parameters(span, constants, stores);
  const RandomBits<V> random(stretch_key(constants.rounding_key, span.first_element), span.first_element);
  T* moments[most_moments];
  for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
    moments[k] = reinterpret_cast<T*>(span.state.moments[k].values);
  });

  for (std::uint64_t i = 0; i < span.numel; i += V::width) {
    parameters.prefetch_at(i);
    typename V::Integers bits{}, more{};
    if constexpr (parameters.random || random_moments) bits = random.of_moments(i);
    if constexpr (parameters.random || (random_moments && Rule::moments > 2)) more = random.more(bits);
    typename V::Floats m[most_moments];
    for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
      prefetch<V>(moments[k] + i);
      m[k] = V::load(moments[k] + i, Whole{});
    });
    parameters.update(i, m, more);
    for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
      const auto drawn = k == 0 ? bits & 0xffffu : (k == 1 ? bits : more) >> 16;
      V::store(moments[k] + i, random_moments ? stochastic_upper<V>(m[k], drawn) : m[k], Whole{});
    });
  }
  if (stores == Stores::streaming) V::drain();
}

}  // namespace
}  // namespace headrace
