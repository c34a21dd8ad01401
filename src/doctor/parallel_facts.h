// What computes beside the processor, and what joins several ranks: GPU, NCCL, MPI.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headrace/communicator.h"
#include "headrace/device.h"
#include "headrace/doctor.h"
#include "headrace/gpu_build.h"
#include "headrace/machine_files.h"
#include "headrace/mpi_module.h"

namespace headrace::doctor {

struct ParallelFacts {
  GpuBuild build;
  std::string driver;                // version of the kernel's NVIDIA driver; empty without one
  std::vector<std::string> gpus;     // models that the driver lists
  std::optional<DeviceInfo> device;  // of this rank, where the build and the machine have one
  Bytes device_bytes = 0;            // that a run may take of it
  std::string device_problem;        // why there is none, and what to do

  LaunchInfo launch;
  std::string launch_problem;  // the launcher's variables contradict each other
  std::string launcher_path;   // of mpirun or srun; empty when neither is on PATH
  std::optional<MpiModule> mpi;
  std::string mpi_problem;
};
// Opens the device, and so wakes it; loads MPI's libraries without starting it. `search_path` is PATH.
ParallelFacts read_parallel(const MachineFiles& files, const std::string& search_path);

std::vector<Finding> findings_of(const ParallelFacts& facts);
nlohmann::ordered_json to_json(const ParallelFacts& facts);

}  // namespace headrace::doctor
