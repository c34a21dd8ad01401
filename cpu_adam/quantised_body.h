// The update of update_body.h with 8-bit moments, one quantisation block at a time.
#pragma once

#include "cpu_adam/codes.h"
#include "cpu_adam/update_body.h"

namespace headrace {
namespace {

// One block between its update and its encoding: its moments, of squared ones the roots, and random bits.
template <class V>
struct KeptBlock {
  static constexpr int vectors = quantised_block_numel / V::width;
  typename V::Floats values[most_moments][vectors];
  typename V::Integers random[vectors];
  float inverse_scale[most_moments];
};

template <class V, bool squared>
[[gnu::always_inline]] inline typename V::Floats decoded(const std::uint8_t* codes,
                                                         typename V::Floats scale) {
  if constexpr (squared) return decoded_squared<V>(V::load_codes(codes), scale);
  return decoded_signed<V>(V::load_signed_codes(codes), scale);
}

template <class V, class Rule, class Master>
class QuantisedUpdate {
 public:
  using Block = KeptBlock<V>;

  [[gnu::always_inline]] QuantisedUpdate(const UpdateSpan& span, const UpdateConstants& constants,
                                         Stores stores)
      : parameters_(span, constants, stores),
        random_(stretch_key(constants.rounding_key, span.first_element), span.first_element) {
    for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
      codes_[k] = reinterpret_cast<std::uint8_t*>(span.state.moments[k].values);
      scales_[k] = span.state.moments[k].scales;
    });
  }

  // Parameters and scales of the block that starts at element `first`; its moments are kept.
  [[gnu::always_inline]] void update(std::uint64_t first, Block& kept) const {
    parameters_.prefetch_after(first);
    PendingSteps<V> pending;
    random_.of_block(first, kept.random);
    direct(first, kept, pending);
    if constexpr (Parameters<V, Rule, Master>::random)
      for (int j = 0; j < pending.vectors; ++j) pending.random[j] = random_.more(kept.random[j]);
    typename V::Floats largest[most_moments] = {};
    for (int j = 0; j < pending.vectors; ++j) {
      for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
        auto& x = kept.values[k][j];
        if constexpr (Rule::squared[k]) x = V::sqrt(x);
        largest[k] = V::larger(Rule::squared[k] ? x : magnitude<V>(x), largest[k]);  // a root has no sign
      });
      if constexpr (Rule::divisor >= 0)
        pending.denominator[j] =
            Rule::template denominator<V>(parameters_.factors, kept.values[Rule::divisor][j]);
    }
    parameters_.step(first, pending);
    parameters_.store_low_tile(first);
    for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
      float& stored = scales_[k][first / quantised_block_numel];
      stored = stored_scale(V::largest(largest[k]), Rule::squared[k]);
      kept.inverse_scale[k] = inverse_scale(stored);
    });
  }

  [[gnu::always_inline]] void encode(std::uint64_t first, const Block& kept) const {
    for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
      const auto inverse = V::set(kept.inverse_scale[k]);
      for (int j = 0; j < Block::vectors; j += 4) {
        std::uint8_t* const to = codes_[k] + first + j * V::width;
        typename V::Integers drawn[4];
        for (int i = 0; i < 4; ++i) {
          const auto bits = kept.random[j + i];
          drawn[i] = random_.template drawn<k>(bits, k == 2 ? random_.more(bits) : bits);
        }
        if constexpr (Rule::squared[k]) {
          encode_roots<V>(to, kept.values[k] + j, inverse, drawn);
        } else {
          encode_signed<V>(to, kept.values[k] + j, inverse, drawn);
        }
      }
    });
  }

 private:
  [[gnu::always_inline]] void direct(std::uint64_t first, Block& kept, PendingSteps<V>& pending) const {
    typename V::Floats scale[most_moments];
    for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
      prefetch_after<V>(codes_[k] + first, sizeof(std::uint8_t));
      scale[k] = V::set(scales_[k][first / quantised_block_numel]);
    });
    for (int j = 0; j < pending.vectors; ++j) {
      const std::uint64_t i = first + j * V::width;
      typename V::Floats m[most_moments];
      for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) {
        m[k] = decoded<V, Rule::squared[k]>(codes_[k] + i, scale[k]);
      });
      pending.direction[j] = parameters_.direct(i, m);
      for_each_moment<Rule>([&]<int k>() __attribute__((always_inline)) { kept.values[k][j] = m[k]; });
    }
  }

  Parameters<V, Rule, Master> parameters_;
  RandomBits<V> random_;
  std::uint8_t* codes_[most_moments];
  float* scales_[most_moments];
};

// A block is encoded after the next one's update, which fills the time until its scale is known (measured in
// cache: 6% of an update by Lion, nothing by Adam).
template <class V, class Rule, class Master>
void update_blocks(const UpdateSpan& span, const UpdateConstants& constants, Stores stores) {
  using Update = QuantisedUpdate<V, Rule, Master>;
  const Update blocks(span, constants, stores);
  const std::uint64_t numel = span.numel;
  typename Update::Block kept[2];
  for (std::uint64_t first = 0; first < numel; first += quantised_block_numel) {
    const std::uint64_t odd = first / quantised_block_numel % 2;
    blocks.update(first, kept[odd]);
    if (first > 0) blocks.encode(first - quantised_block_numel, kept[1 - odd]);
  }
  const std::uint64_t last = numel - quantised_block_numel;
  blocks.encode(last, kept[last / quantised_block_numel % 2]);
  if (stores == Stores::streaming) V::drain();
}

}  // namespace
}  // namespace headrace
