// The update of update_body.h with 8-bit moments: one quantisation block at a time, whose moments stay in
// registers until their scale is known.
#pragma once

#include "cpu_adam/codes.h"
#include "cpu_adam/update_body.h"

namespace headrace {
namespace {

// A moment of one block; of squared ones the roots.
template <class V>
struct QuantisedBlock {
  static constexpr int vectors = quantised_block_numel / V::width;
  typename V::Floats scale, values[vectors], largest;
};

template <class V, bool squared>
[[gnu::always_inline]] inline typename V::Floats decoded(const std::uint8_t* codes,
                                                         typename V::Floats scale) {
  if constexpr (squared) return decoded_squared<V>(V::load_codes(codes), scale);
  return decoded_signed<V>(V::load_codes(codes), scale);
}

template <class V, bool squared>
[[gnu::always_inline]] inline void keep(QuantisedBlock<V>& block, int j, typename V::Floats moment) {
  block.values[j] = squared ? V::sqrt(moment) : moment;
  block.largest = V::larger(magnitude<V>(block.values[j]), block.largest);
}

template <class V, bool squared>
[[gnu::always_inline]] inline void encode(const QuantisedBlock<V>& block, std::uint8_t* codes, float* scale) {
  *scale = V::largest(block.largest);
  const auto inverse = V::set(inverse_scale(*scale));
  for (int j = 0; j < block.vectors; ++j) {
    const auto x = block.values[j];
    V::store_codes(codes + j * V::width,
                   squared ? encoded_root<V>(x, inverse) : encoded_signed<V>(x, inverse));
  }
}

template <class V, class Rule, class Master>
void update_blocks(const UpdateSpan& span, const UpdateConstants& constants, Stores stores) {
  using Block = QuantisedBlock<V>;
  const Parameters<V, Rule, Master> parameters(span, constants, stores);
  const RandomBits<V> random(stretch_key(constants.rounding_key, span.first_element), span.first_element);
  std::uint8_t* codes[most_moments];
  for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
    codes[k] = reinterpret_cast<std::uint8_t*>(span.state.moments[k].values);
  });

  for (std::uint64_t first = 0; first < span.numel; first += quantised_block_numel) {
    Block blocks[most_moments];
    for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
      prefetch<V>(codes[k] + first);
      blocks[k].scale = V::set(span.state.moments[k].scales[first / quantised_block_numel]);
      blocks[k].largest = V::set(0.0f);
    });
    for (int j = 0; j < Block::vectors; ++j) {
      const std::uint64_t i = first + j * V::width;
      parameters.prefetch_at(i);
      typename V::Integers more{};
      if constexpr (parameters.random) more = random.more(random.of_moments(i));
      typename V::Floats m[most_moments];
      for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
        m[k] = decoded<V, Rule::squared[k]>(codes[k] + i, blocks[k].scale);
      });
      parameters.update(i, m, more);
      for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
        keep<V, Rule::squared[k]>(blocks[k], j, m[k]);
      });
    }
    for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
      float* const scale = span.state.moments[k].scales + first / quantised_block_numel;
      encode<V, Rule::squared[k]>(blocks[k], codes[k] + first, scale);
    });
  }
  if (stores == Stores::streaming) V::drain();
}

}  // namespace
}  // namespace headrace
