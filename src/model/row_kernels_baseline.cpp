// The row kernels with what every CPU of the architecture has.
#include "src/model/row_kernels_body.h"

namespace headrace {
const RowKernelTables* const row_kernels_baseline = &body_tables;
}
