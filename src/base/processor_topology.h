// hwloc's view of this machine's processors and memory, for those who bind threads.
#pragma once

#include <hwloc.h>

namespace headrace {

// Read once and kept; null where hwloc cannot tell. Without devices, which take most of the time to find.
hwloc_topology_t processor_topology();

}  // namespace headrace
