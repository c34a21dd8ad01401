// Chooses the instruction set of the row kernels at run time.
#include "src/model/row_kernels.h"

#include "headrace/errors.h"

namespace headrace {

const RowKernels& row_kernels(DType dtype, Isa isa) {
  const RowKernelTables* tables = isa == Isa::avx512 ? row_kernels_avx512
                                  : isa == Isa::avx2 ? row_kernels_avx2
                                                     : row_kernels_baseline;
  HEADRACE_CHECK(tables != nullptr && supported(isa), "no {} row kernels on this machine", name_of(isa));
  return dtype == DType::f32 ? tables->f32 : dtype == DType::bf16 ? tables->bf16 : tables->f16;
}

}  // namespace headrace
