#include "headrace/finite.h"

namespace headrace {
namespace {

// All bits of the exponent are set in infinities and NaNs alone.
template <class Bits>
std::uint64_t first_with(const void* values, std::uint64_t numel, Bits exponent) {
  const auto* bits = static_cast<const Bits*>(values);
  for (std::uint64_t i = 0; i < numel; ++i)
    if ((bits[i] & exponent) == exponent) return i;
  return all_finite;
}

}  // namespace

std::uint64_t first_non_finite(const void* values, DType dtype, std::uint64_t numel) {
  switch (dtype) {
    case DType::f32:
      return first_with<std::uint32_t>(values, numel, 0x7f800000u);
    case DType::bf16:
      return first_with<std::uint16_t>(values, numel, 0x7f80u);
    case DType::f16:
      return first_with<std::uint16_t>(values, numel, 0x7c00u);
  }
  return all_finite;
}

}  // namespace headrace
