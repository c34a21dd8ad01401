// The kernels for vectors of vector_scalar.h.
#include "cpu_adam/sums_body.h"
#include "cpu_adam/update_choice.h"
#include "cpu_adam/vector_scalar.h"

namespace headrace {
namespace {

constexpr KernelTable table = {update<Scalar>, ceiling<Scalar>, sum_slices<Scalar>, round_and_norm<Scalar>,
                               round_to<Scalar>};

}  // namespace

const KernelTable* const scalar_kernels = &table;

}  // namespace headrace
