// The arithmetic of tests/support/toy_compute.h on a CUDA device: the same bits as on the host.
#pragma once

#include "tests/support/toy_compute.h"

namespace headrace::testing {

ToyCompute& cuda_toy_compute();

}  // namespace headrace::testing
