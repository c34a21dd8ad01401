// The arrays of a span as a kernel holds them: what every format of states has in common.
#pragma once

#include "gpu/update_rules.cuh"
#include "headrace/optimizer_update.h"

namespace headrace {

template <class Master, class Gradient>
struct UpdateArrays {
  Master* master;
  const Gradient* gradient;
  std::byte* low;  // null: no low-precision output
  DType low_dtype;
  std::uint64_t first_element;
  int moment_count;
  UpdateConstants constants;

  static UpdateArrays of(const UpdateSpan& span, const UpdateConstants& constants) {
    return {.master = reinterpret_cast<Master*>(span.state.master),
            .gradient = static_cast<const Gradient*>(span.gradient),
            .low = static_cast<std::byte*>(span.low_precision),
            .low_dtype = span.low_precision_dtype,
            .first_element = span.first_element,
            .moment_count = headrace::moment_count(span.format),
            .constants = constants};
  }

  template <class Visit>
  void pointers(Visit visit) {
    visit(master), visit(gradient);
    if (low != nullptr) visit(low);
  }

  __device__ ElementBits bits(std::int64_t i) const {
    return ElementBits::of(constants.rounding_key, first_element + static_cast<std::uint64_t>(i));
  }

  // The master as it is stored, and the low-precision output from that.
  template <int n>
  __device__ void store_parameters(std::int64_t i, Floats<n> p) const {
    if constexpr (!std::is_same_v<Master, float>)
      for (int k = 0; k < n; ++k) p[k] = rounded_stochastically(p[k], bits(i + k).of_master());
    store<n>(master + i, p);
    if (low == nullptr) return;
    if (low_dtype == DType::f32)
      store<n>(reinterpret_cast<float*>(low) + i, p);
    else if (low_dtype == DType::bf16)
      store<n>(reinterpret_cast<__nv_bfloat16*>(low) + i, p);
    else
      store<n>(reinterpret_cast<__half*>(low) + i, p);
  }
};

}  // namespace headrace
