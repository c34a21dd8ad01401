// The threads that run CPU kernels: one oneTBB arena per process, sized from the affinity mask, the cgroup's CPU quota and
// the ranks on this host, or set_cpu_threads; OMP_NUM_THREADS is ignored.
#pragma once

#include <cstdint>
#include <functional>

namespace headrace {

int cpu_threads();
// Before the first parallel_ranges of the process; 0 restores the default.
void set_cpu_threads(int threads);
int available_cpus();  // affinity mask and cgroup quota

// Calls body(begin, end) over [0, count) cut at multiples of `grain`, on the pool, and waits. Rethrows the first error.
void parallel_ranges(std::uint64_t count, std::uint64_t grain,
                     const std::function<void(std::uint64_t begin, std::uint64_t end)>& body);

}  // namespace headrace
