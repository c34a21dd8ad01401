// One update of a span in one pass over memory, written over a vector type V (vector_scalar.h), a rule
// (update_rules.h) and the element types of master and moments. The types of gradient and output are branches
// that always go the same way: templates on them too would be twelve times the code and no faster.
//
// A tile is gone through several times: moments, divisors, parameters, then their low precision. From
// gradient to parameter one vector takes some 80 cycles, of operations that each wait for the one before; a
// core cannot look far enough ahead to fill them with the next vectors' (measured in cache with AVX2 on a Zen
// 3: 1.3 times as fast as a single pass).
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

// What lies that far behind the start of a tile of elements of so many bytes.
template <class V>
[[gnu::always_inline]] inline void prefetch_after(const void* tile, Bytes element_bytes) {
  constexpr Bytes line_bytes = 64;
  if constexpr (V::width == 1) return;
  const auto* const ahead = static_cast<const std::byte*>(tile) + prefetch_numel * element_bytes;
  for (Bytes line = 0; line < tile_numel * element_bytes; line += line_bytes)
    __builtin_prefetch(ahead + line);
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

// What the passes over a tile leave to the next, vector by vector: random bits, the direction of the step and
// what divides it.
template <class V>
struct PendingSteps {
  static constexpr int vectors = static_cast<int>(tile_numel) / V::width;
  typename V::Integers random[vectors];
  typename V::Floats direction[vectors], denominator[vectors];
};

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

  [[gnu::always_inline]] void prefetch_after(std::uint64_t first) const {
    headrace::prefetch_after<V>(master + first, sizeof(Master));
    const Bytes bytes = size_of(gradient_dtype);
    headrace::prefetch_after<V>(static_cast<const std::byte*>(gradient) + first * bytes, bytes);
  }

  // Elements [i, i + V::width): their new moments, from those in `m`, and the direction of their step.
  [[gnu::always_inline]] typename V::Floats direct(std::uint64_t i, Moments<V>& m) const {
    const auto p = V::load(master + i, Whole{});
    return Rule::template direct<V>(factors, factors.gradient(load_as<V>(gradient_dtype, gradient, i), p), m);
  }

  // Their step; `more` are their more_bits.
  [[gnu::always_inline]] void step(std::uint64_t i, typename V::Floats direction,
                                   typename V::Floats denominator, typename V::Integers more) const {
    auto p = Rule::template step<V>(factors, V::load(master + i, Whole{}), direction, denominator);
    if constexpr (random) p = upper_half<V>(stochastic_upper<V>(p, more & 0xffffu));
    V::store(master + i, p, Whole{});
  }
  // Of the tile that starts at `first`.
  [[gnu::always_inline]] void step(std::uint64_t first, const PendingSteps<V>& pending) const {
    for (int j = 0; j < pending.vectors; ++j)
      step(first + j * V::width, pending.direction[j], pending.denominator[j], pending.random[j]);
  }

  // The low-precision parameters of the tile that starts at `first`, from the master just stored: beside the
  // long chain of an update each of these would wait for its end.
  [[gnu::always_inline]] void store_low_tile(std::uint64_t first) const {
    if (low == nullptr) return;
    if (low_dtype == DType::bf16) return store_tile(static_cast<bf16*>(low) + first, master + first);
    if (low_dtype == DType::f16) return store_tile(static_cast<fp16*>(low) + first, master + first);
    store_tile(static_cast<float*>(low) + first, master + first);
  }

 private:
  template <class T>
  [[gnu::always_inline]] void store_tile(T* to, const Master* from) const {
    for (std::uint64_t i = 0; i < tile_numel; i += V::width) {
      const auto x = V::load(from + i, Whole{});
      if constexpr (std::is_same_v<T, float>) {
        V::store(to + i, x, Whole{});
      } else {
        store_low<V>(to + i, x, stores);
      }
    }
  }
};

// Calls body<k>() for each moment of the rule.
template <class Rule, class Body>
[[gnu::always_inline]] inline void for_each_moment(const Body& body) {
  if constexpr (Rule::moments > 0) body.template operator()<0>();
  if constexpr (Rule::moments > 1) body.template operator()<1>();
  if constexpr (Rule::moments > 2) body.template operator()<2>();
}

// Moments of type T: float, or bf16 rounded stochastically. The parameters of a tile are rounded in the next
// one's turn, when they are in memory.
template <class V, class Rule, class Master, class T>
void update_vectors(const UpdateSpan& span, const UpdateConstants& constants, Stores stores) {
  constexpr bool random_moments = std::is_same_v<T, bf16> && Rule::moments > 0;
  const Parameters<V, Rule, Master> parameters(span, constants, stores);
  const RandomBits<V> random(stretch_key(constants.rounding_key, span.first_element), span.first_element);
  T* moments[most_moments];
  for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
    moments[k] = reinterpret_cast<T*>(span.state.moments[k].values);
  });

  for (std::uint64_t first = 0; first < span.numel; first += tile_numel) {
    PendingSteps<V> pending;
    if constexpr (parameters.random || random_moments) random.of_moments(first, pending.random);
    if (first > 0) parameters.store_low_tile(first - tile_numel);
    parameters.prefetch_after(first);
    for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
      prefetch_after<V>(moments[k] + first, sizeof(T));
    });
    for (int j = 0; j < pending.vectors; ++j) {
      const std::uint64_t i = first + j * V::width;
      typename V::Floats m[most_moments];
      for_each_moment<Rule>([&]<int k>()
                                __attribute__((always_inline)) { m[k] = V::load(moments[k] + i, Whole{}); });
      pending.direction[j] = parameters.direct(i, m);
      if constexpr (Rule::divisor >= 0) pending.denominator[j] = m[Rule::divisor];
      const auto bits = pending.random[j];
      typename V::Integers more{};
      if constexpr (parameters.random || (random_moments && Rule::moments > 2)) more = random.more(bits);
      for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
        const auto drawn = random.template drawn<k>(bits, more);
        V::store(moments[k] + i, random_moments ? stochastic_upper<V>(m[k], drawn) : m[k], Whole{});
      });
      pending.random[j] = more;
    }
    if constexpr (Rule::divisor >= 0)
      for (auto& d : pending.denominator) d = Rule::template denominator<V>(parameters.factors, V::sqrt(d));
    parameters.step(first, pending);
  }
  parameters.store_low_tile(span.numel - tile_numel);
  if (stores == Stores::streaming) V::drain();
}

}  // namespace
}  // namespace headrace
