#include "src/doctor/parallel_facts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "headrace/backends.h"
#include "headrace/errors.h"

namespace headrace::doctor {
namespace {

constexpr const char* topic = "devices and ranks";

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue ...": the first word of digits and dots.
std::string driver_version(const MachineFiles& files) {
  std::istringstream words(files.line("/proc/driver/nvidia/version").value_or(""));
  for (std::string word; words >> word;)
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos)
      return word;
  return {};
}

void open_gpu(ParallelFacts& facts) {
  try {
    facts.device_bytes = available_device_memory(DeviceKind::cuda, facts.launch);
    constexpr Bytes smallest_arena = 1 << 20;
    facts.device = open_device({.device = DeviceKind::cuda,
                                .device_memory_bytes = std::min(smallest_arena, facts.device_bytes),
                                .launch = facts.launch})
                       ->info();
  } catch (const Error& error) {
    facts.device_problem = error.what();
  }
}

std::string find_program(const std::string& search_path, const char* name) {
  std::istringstream folders(search_path);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const std::string path = folder + "/" + name; !folder.empty() && ::access(path.c_str(), X_OK) == 0)
      return path;
  return {};
}

Finding gpu(const ParallelFacts& facts) {
  if (facts.device) {
    std::string value = fmt::format("{}, {} for a run", facts.device->name, format_bytes(facts.device_bytes));
    if (!facts.device->link.empty()) value += ", " + facts.device->link;
    if (!facts.device->near.empty()) value += ", near " + facts.device->near;
    return {topic, "GPU", value + ", " + facts.build.toolkit};
  }
  if (facts.driver.empty() && !facts.build.built)
    return {topic, "GPU", "none seen", FindingStatus::note,
            "Runs compute on the CPU (--device cpu). On a machine with an NVIDIA GPU, build with: cmake "
            "--preset cuda "
            "&& cmake --build --preset cuda"};
  const std::string seen = facts.driver.empty() ? "no driver of NVIDIA is loaded"
                           : facts.gpus.empty()
                               ? fmt::format("driver {}", facts.driver)
                               : fmt::format("{} (driver {})", fmt::join(facts.gpus, ", "), facts.driver);
  return {topic, "GPU", seen + ", not usable", FindingStatus::limit, facts.device_problem};
}

Finding nccl(const ParallelFacts& facts) {
  if (facts.build.built) return {topic, "NCCL", facts.build.collectives};
  return {
      topic, "NCCL", "not in this build", FindingStatus::note,
      "It joins ranks with GPUs, and comes with the CUDA backend (--preset cuda). Ranks on the CPU use MPI."};
}

Finding mpi(const ParallelFacts& facts) {
  if (!facts.mpi)
    return {topic, "MPI", "cannot be loaded", FindingStatus::limit,
            facts.mpi_problem + " One rank runs without it."};
  return {topic, "MPI", facts.mpi->library.empty() ? facts.mpi->path : facts.mpi->library};
}

Finding launcher(const ParallelFacts& facts) {
  if (!facts.launch_problem.empty())
    return {topic, "launcher", "contradicts itself", FindingStatus::limit,
            facts.launch_problem + " Unset its variables, or start the program through it."};
  if (facts.launch.launcher != "none")
    return {topic, "launcher",
            fmt::format("{}: rank {} of {}, {} on this host", facts.launch.launcher, facts.launch.rank,
                        facts.launch.size, facts.launch.local_size)};
  if (!facts.launcher_path.empty()) return {topic, "launcher", facts.launcher_path};
  return {topic, "launcher", "none on PATH", FindingStatus::note,
          "Several ranks need mpirun or srun (Debian: openmpi-bin). One rank runs without it."};
}

}  // namespace

ParallelFacts read_parallel(const MachineFiles& files, const std::string& search_path) {
  ParallelFacts facts;
  facts.build = gpu_build();
  facts.driver = driver_version(files);
  for (const std::string& bus_id : files.names_in("/proc/driver/nvidia/gpus"))
    facts.gpus.push_back(
        files.value_of("/proc/driver/nvidia/gpus/" + bus_id + "/information", "Model").value_or(bus_id));
  try {
    facts.launch = launch_info();
  } catch (const Error& error) {
    facts.launch_problem = error.what();
  }
  open_gpu(facts);
  try {
    facts.mpi = load_mpi_module();
  } catch (const Error& error) {
    facts.mpi_problem = error.what();
  }
  for (const char* name : {"mpirun", "srun"})
    if (facts.launcher_path.empty()) facts.launcher_path = find_program(search_path, name);
  return facts;
}

std::vector<Finding> findings_of(const ParallelFacts& facts) {
  return {gpu(facts), nccl(facts), mpi(facts), launcher(facts)};
}

nlohmann::ordered_json to_json(const ParallelFacts& facts) {
  using nlohmann::ordered_json;
  return {{"device", facts.device ? ordered_json(facts.device->name) : ordered_json()},
          {"link", facts.device ? ordered_json(facts.device->link) : ordered_json()},
          {"near", facts.device ? ordered_json(facts.device->near) : ordered_json()},
          {"device_memory_bytes", facts.device ? ordered_json(facts.device_bytes) : ordered_json()},
          {"gpus", facts.gpus},
          {"gpu_driver", facts.driver},
          {"cuda", facts.build.toolkit},
          {"nccl", facts.build.collectives},
          {"mpi", facts.mpi ? ordered_json(facts.mpi->library) : ordered_json()},
          {"ranks", facts.launch.size}};
}

}  // namespace headrace::doctor
