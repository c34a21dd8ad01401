// The pieces in which the pool updates spans, however many and small or few and large they are.
#pragma once

#include <functional>
#include <span>

#include "headrace/optimizer_update.h"

namespace headrace {

// Calls body with parts that together are the spans, each once, on the threads of the CPU pool, and waits.
// Parts start on multiples of quantised_block_numel of their span; how long they are may depend on the number
// of threads.
void for_each_part(std::span<const GroupSpan> spans,
                   const std::function<void(const UpdateSpan& part, std::uint32_t group)>& body);

// optimizer_update_parallel with the kernels given.
struct KernelTable;
void update_parallel(const KernelTable& kernels, std::span<const GroupSpan> spans,
                     std::span<const OptimizerArguments> groups, std::uint64_t update_numel);

}  // namespace headrace
