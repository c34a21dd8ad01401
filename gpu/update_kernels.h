// The optimizer's update on one queue: DeviceKernels::update. Pointers are device memory of any alignment of
// their element type; the bits do not depend on it. Nothing is launched for 0 elements.
#pragma once

#include "gpu/kernel_queue.h"
#include "headrace/optimizer_update.h"

namespace headrace {

void update(KernelQueue& queue, const UpdateSpan& span, const UpdateConstants& constants);

}  // namespace headrace
