// The kernels for vectors of vector_avx2.h.
#include "cpu_adam/kernel_table.h"

#if defined(__x86_64__)
#include "headrace/kernels.h"
#include "headrace/state_codes.h"

// Below every header that is not for these instructions alone.
#include "cpu_adam/vector_avx2.h"

// Templates over the vector type.
#include "cpu_adam/sums_body.h"
#include "cpu_adam/update_choice.h"

namespace headrace {
namespace {

constexpr KernelTable table = {update<Avx2>, ceiling<Avx2>, sum_slices<Avx2>, round_and_norm<Avx2>,
                               round_to<Avx2>};

}  // namespace

const KernelTable* const avx2_kernels = &table;

}  // namespace headrace

#else

namespace headrace {
const KernelTable* const avx2_kernels = nullptr;
}

#endif
