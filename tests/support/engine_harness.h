// Builds an engine over the CPU device for tests and runs toy steps on it: one place that knows how the parts
// fit together.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "headrace/engine.h"
#include "headrace/planner.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_communicator.h"
#include "tests/support/toy_module.h"

namespace headrace::testing {

struct EngineRun {
  EngineOptions options;
  int world_size = 1;
  int steps = 5;
  double learning_rate = 1e-2;
  // The rate of each group in a step, in the place of that one.
  std::function<std::vector<double>(std::uint64_t step)> group_rates = {};
  CpuDeviceOptions device{.memory_bytes = 64 << 20, .compute_threads = 1};
  std::vector<UnitSpec> units = awkward_units();
  std::function<void(int rank, std::uint64_t step, ToyModule& module)> before_step =
      {};  // changes the module
  std::function<void(std::uint64_t step, int micro_batch, ToyModule& module)> before_micro_batch = {};
  // At the end, on every rank; the place for looking inside.
  std::function<void(int rank, Engine& engine, Device& device)> inspect = {};
  bool resume = false;
  // In the place of initialise and resume; after the last step; after each. What a rank works with:
  struct Rank {
    int rank;
    Engine& engine;
    IoEngine& io;
    Communicator& communicator;
    Device& device;
    const EngineOptions& options;
  };
  std::function<TrainingState(const Rank&, const TrainingState& start)> begin = {};
  std::function<void(const Rank&, const TrainingState&)> finish = {}, after_step = {};
  // For devices other than the CPU's.
  std::function<std::unique_ptr<Device>()> make_device = {};
  std::function<std::unique_ptr<DeviceKernels>(Device&)> make_kernels = make_cpu_kernels;
  std::function<std::unique_ptr<IoEngine>()> make_io = [] { return make_thread_engine({}); };
  ToyCompute* compute = &host_toy_compute();
};

// What the planner is asked about such a run.
PlanRequest toy_plan_request(const EngineRun& run);

struct EngineRunResult {
  std::uint64_t hash = 0;
  std::vector<StepResult> steps;
  TrainingState state;
};

// The most that any rank of a run took, by tag: sets run.inspect.
struct RunPeaks {
  explicit RunPeaks(EngineRun& run);
  TagBytes device, host;

 private:
  std::mutex mutex_;
};

// Runs `world_size` ranks as threads; the result is rank 0's.
EngineRunResult run_engine(const EngineRun& run);

// One rank of such a run, over a device and a communicator of its own.
EngineRunResult run_engine_rank(const EngineRun& run, int rank, Device& device, Communicator& communicator);

// Every legal combination of stage and tiers; anything on NVMe only when `nvme`.
struct Combination {
  int stage;
  Tier optimizer, gradients, parameters;
  bool uses_nvme() const {
    return optimizer == Tier::nvme || gradients == Tier::nvme || parameters == Tier::nvme;
  }
};
std::vector<Combination> legal_combinations(bool nvme);
// Of those a few that hold every pair of stage 3's tiers; `which` of 0, 1 and 2 together hold all of stage 3.
std::vector<Combination> pairwise_combinations(std::uint32_t which);
std::string describe(const Combination& combination);
EngineOptions with(EngineOptions options, const Combination& combination);

}  // namespace headrace::testing
