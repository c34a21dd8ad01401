// Cross-entropy of rows of logits and its gradient, a block a row: one pass finds the log of the row's sum of
// exponentials, one writes the gradient. CrossEntropyArguments of headrace/ops.h, in device memory of any
// alignment of the element types. Sums are fp32 in an order that the vocabulary alone decides. Targets
// outside the vocabulary are told by check_tokens (token_kernels.h); here their loss is not a number.
#pragma once

#include "gpu/kernel_queue.h"
#include "headrace/ops.h"

namespace headrace {

void cross_entropy(KernelQueue& queue, const CrossEntropyArguments& arguments);

}  // namespace headrace
