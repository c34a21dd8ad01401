// Where an array stops being finite: for naming the parameter whose gradient overflowed.
#pragma once

#include <cstdint>

#include "headrace/dtype.h"

namespace headrace {

inline constexpr std::uint64_t all_finite = ~std::uint64_t{0};

// Number of the first of `numel` elements of host memory that is infinite or NaN; `all_finite` where none is.
std::uint64_t first_non_finite(const void* values, DType dtype, std::uint64_t numel);

}  // namespace headrace
