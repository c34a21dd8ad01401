// The threads that run CPU kernels: one oneTBB arena per process, sized from the affinity mask, the cgroup's
// CPU quota and the ranks on this host, or set_cpu_threads; OMP_NUM_THREADS is ignored. Any thread may call.
#pragma once

#include <cstdint>
#include <functional>

namespace headrace {

int cpu_threads();
// Applies to the parallel_ranges that start afterwards; 0 restores the default.
void set_cpu_threads(int threads);
int available_cpus();  // affinity mask and cgroup quota

// Calls body(begin, end) once for each [k * grain, (k + 1) * grain) of [0, count), the last one shorter, on
// the pool, and waits. The pieces are the same for any number of threads. Rethrows the first error, after
// which pieces may be left out.
void parallel_ranges(std::uint64_t count, std::uint64_t grain,
                     const std::function<void(std::uint64_t begin, std::uint64_t end)>& body);

}  // namespace headrace
