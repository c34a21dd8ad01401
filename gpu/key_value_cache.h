// Keys and values of new positions into a cache (attention_shape.h), in device memory of any alignment of
// their element type.
#pragma once

#include "gpu/kernel_queue.h"
#include "headrace/ops.h"

namespace headrace {

// Rows of qkv to the rows behind the cache's used ones, of each sample.
void append_to_cache(KernelQueue& queue, const AttentionShape& shape, const std::byte* qkv,
                     const KeyValueCache& cache);

}  // namespace headrace
