// The threads that run CPU kernels: one pool per process, sized from the affinity mask, the cgroup's CPU
// quota and the ranks on this host, or set_cpu_threads; OMP_NUM_THREADS is ignored. On a machine with several
// NUMA nodes each thread is bound to the CPUs of one (cpu_placement.h), the calling one while it takes part,
// also where it is the only one (a call of a single piece stays where the caller is); with one node nothing
// is bound. Any thread may call.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "headrace/cpu_placement.h"

namespace headrace {

int cpu_threads();
// Applies to the parallel_ranges that start afterwards; 0 restores the default.
void set_cpu_threads(int threads);
int available_cpus();  // affinity mask and cgroup quota
// The nodes that cpu_threads() are bound to; empty when they are not.
std::vector<NodeThreads> cpu_placement();

// Calls body(begin, end) once for each [k * grain, (k + 1) * grain) of [0, count), the last one shorter, on
// the pool, and waits. The pieces are the same for any number of threads. Rethrows the first error, after
// which pieces may be left out.
void parallel_ranges(std::uint64_t count, std::uint64_t grain,
                     const std::function<void(std::uint64_t begin, std::uint64_t end)>& body);

// The same for work on memory that lies on nodes: threads take first the pieces that node_of(begin) says are
// on theirs (-1: on none), last those of other nodes that have not come to them. It is not asked where the
// threads are not bound.
void parallel_ranges(std::uint64_t count, std::uint64_t grain,
                     const std::function<int(std::uint64_t begin)>& node_of,
                     const std::function<void(std::uint64_t begin, std::uint64_t end)>& body);

}  // namespace headrace
