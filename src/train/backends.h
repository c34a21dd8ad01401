// The registry: the one place that names concrete backends. What needs no run is in headrace/backends.h.
#pragma once

#include <memory>

#include "headrace/backends.h"

namespace headrace {

// In order of construction: later members use earlier ones.
struct Backends {
  std::unique_ptr<Device> device;
  std::unique_ptr<DeviceKernels> kernels;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<IoEngine> io;  // null when nothing lives on NVMe
  // Of a thread that saves while this rank goes on: lanes and a communicator of its own, for host memory.
  // Null where nothing is saved so.
  std::unique_ptr<Device> saver_device;
  std::unique_ptr<Communicator> saver_communicator;
};
// `communicator`: the caller's way to the other ranks; empty: the launcher's.
Backends make_backends(const ResolvedOptions& options, Bytes device_memory_bytes,
                       const CommunicatorMaker& communicator = {});
// Where something is saved beside the steps. Collective: not before the ranks agree on that.
void open_saver(const ResolvedOptions& options, Backends& backends);

}  // namespace headrace
