// Opens what a run or a benchmark stands on, without a model or a plan. Every error is a UsageError that says
// what this build or this machine lacks.
#pragma once

#include <functional>
#include <memory>

#include "headrace/communicator.h"
#include "headrace/config.h"
#include "headrace/device.h"
#include "headrace/io_engine.h"
#include "headrace/kernels.h"
#include "headrace/ops.h"

namespace headrace {

struct BackendOptions {
  DeviceKind device = DeviceKind::cpu;
  Bytes device_memory_bytes = 0;
  int threads = 0;                   // of the CPU device's kernels; 0: this process's share of the machine
  double link_bytes_per_second = 0;  // paces the CPU device's copies; 0: not paced
  double timeout_seconds = 600;      // of a rank that waits for another one
  LaunchInfo launch;
};

std::unique_ptr<Device> open_device(const BackendOptions& options);
// The two below stand on `device`, which is open_device's with the same options, and end before it.
std::unique_ptr<DeviceKernels> open_kernels(const BackendOptions& options, Device& device);
// Of a model on such a device.
OpsFactory ops_factory(DeviceKind device);
// All ranks of the launcher's job. Blocks until they have arrived.
std::unique_ptr<Communicator> open_communicator(const BackendOptions& options, Device& device);

using CommunicatorMaker = std::function<std::unique_ptr<Communicator>(Device&, const CommunicatorOptions&)>;

std::unique_ptr<IoEngine> make_io(IoKind kind, IoEngineOptions options);

// Device memory that this rank may take: its share of the host's memory on the CPU device.
Bytes available_device_memory(DeviceKind device, const LaunchInfo& launch);

}  // namespace headrace
