// The row kernels with AVX2 instructions. Every header of the standard library is included above the pragma.
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "src/model/row_kernels.h"

#if defined(__x86_64__)
#pragma GCC target("avx2")

#include "src/model/row_kernels_body.h"

namespace headrace {
const RowKernelTables* const row_kernels_avx2 = &body_tables;
}
#else
namespace headrace {
const RowKernelTables* const row_kernels_avx2 = nullptr;
}
#endif
