// The loads and stores of an update with one addition for each array: what memory allows, for benchmarks.
#pragma once

#include "cpu_adam/update_body.h"

namespace headrace {
namespace {

struct Codes {};

// Adds g to elements [i, i + V::width) of a moment; any small number to codes.
template <class V, class T>
[[gnu::always_inline]] inline void add_to_moment(const MomentArray& moment, std::uint64_t i,
                                                 typename V::Floats g) {
  if constexpr (std::is_same_v<T, Codes>) {
    auto* const codes = reinterpret_cast<std::uint8_t*>(moment.values) + i;
    V::store_codes(codes, (V::load_codes(codes) + 1u) & 0xffu);
    if (i % quantised_block_numel == 0) moment.scales[i / quantised_block_numel] += 1.0f;
  } else {
    T* const values = reinterpret_cast<T*>(moment.values) + i;
    V::store(values, V::load(values, Whole{}) + g, Whole{});
  }
}

template <class V, class Master, class T, int moments>
void ceiling_typed(const UpdateSpan& span, Stores stores) {
  const MomentArray arrays[most_moments] = {span.state.moments[0], span.state.moments[1],
                                            span.state.moments[2]};
  Master* const master = reinterpret_cast<Master*>(span.state.master);
  const void* const gradient = span.gradient;
  void* const low = span.low_precision;
  const DType gradient_dtype = span.gradient_dtype, low_dtype = span.low_precision_dtype;
  for (std::uint64_t i = 0, numel = span.numel; i < numel; i += V::width) {
    const auto g = load_as<V>(gradient_dtype, gradient, i);
    for (int k = 0; k < moments; ++k) add_to_moment<V, T>(arrays[k], i, g);
    const auto p = V::load(master + i, Whole{}) + g;
    V::store(master + i, p, Whole{});
    if (low != nullptr) store_as<V>(low_dtype, low, i, p, stores);
  }
  if (stores == Stores::streaming) V::drain();
}

template <class V, class Master, int moments>
[[gnu::always_inline]] inline void ceiling_of(const UpdateSpan& span, Stores stores) {
  if (span.format.moments == MomentDType::f32) return ceiling_typed<V, Master, float, moments>(span, stores);
  if (span.format.moments == MomentDType::bf16) return ceiling_typed<V, Master, bf16, moments>(span, stores);
  ceiling_typed<V, Master, Codes, moments>(span, stores);
}

template <class V, class Master>
[[gnu::always_inline]] inline void ceiling_with(const UpdateSpan& span, Stores stores) {
  switch (moment_count(span.format)) {
    case 0:
      return ceiling_typed<V, Master, float, 0>(span, stores);
    case 1:
      return ceiling_of<V, Master, 1>(span, stores);
    case 2:
      return ceiling_of<V, Master, 2>(span, stores);
  }
  ceiling_of<V, Master, 3>(span, stores);
}

}  // namespace
}  // namespace headrace
