// Two NUMA nodes of one CPU each, for a process of its own: before anything asks for the processor's
// topology.
#pragma once

#include <sched.h>

#include <cstdlib>

#include "headrace/cpu_pool.h"

namespace headrace::testing {

// Exits with 8 where CPUs 0 and 1 are not to be had. Other CPUs would be a third home of threads.
inline void pretend_two_nodes() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(0, &cpus);
  CPU_SET(1, &cpus);
  if (::sched_setaffinity(0, sizeof cpus, &cpus) != 0) std::_Exit(8);
  ::setenv("HWLOC_SYNTHETIC", "node:2 pu:1", 1);
  ::setenv("HWLOC_THISSYSTEM", "1", 1);
  set_cpu_threads(2);
}

}  // namespace headrace::testing
