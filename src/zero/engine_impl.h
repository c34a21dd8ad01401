// What an engine consists of: shared by the files that implement its calls.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "headrace/engine.h"
#include "src/zero/state_snapshot.h"
#include "src/zero/updater.h"

namespace headrace {

// Divides the seconds that others waited for a lane into those in which it waited for NVMe itself, as far as
// the two are known to overlap from call to call, and the rest.
class StallSplit {
 public:
  void update(double stalled, double waited_for_nvme) {
    const double more = stalled - stalled_, more_waited = waited_for_nvme - waited_;
    stalled_ = stalled, waited_ = waited_for_nvme;
    nvme_ += std::clamp(more_waited, 0.0, std::max(more, 0.0));
  }
  double nvme() const { return nvme_; }
  double link() const { return stalled_ - nvme_; }

 private:
  double stalled_ = 0, waited_ = 0, nvme_ = 0;
};

struct Engine::Impl {
  EngineContext context;
  std::set<std::string> parameter_names;
  std::unique_ptr<ScratchStore> scratch;
  std::unique_ptr<StateStore> states;
  std::unique_ptr<GradientStore> gradients;
  std::unique_ptr<ParameterStore> parameters;
  std::unique_ptr<StateSnapshots> snapshots;  // null where none are asked for
  std::unique_ptr<Updater> updater;
  StallSplit upload_stalls, download_stalls;
  std::optional<LossScaler> loss_scaler;  // of fp16 models
  std::uint64_t steps_applied = 0;
  double optimizer_seconds = 0;

  Impl(Device& device, DeviceKernels& kernels, Communicator& communicator, IoEngine* io,
       const EngineOptions& options)
      : context(device, kernels, communicator, io, options) {
    if (options.dtype == DType::f16) loss_scaler.emplace(options.loss_scale);
  }

  // The order of a step's update alternates.
  static bool reversed(std::uint64_t step) { return step % 2 == 0; }
  // Allocates, fills the states and commits them as the start of a run.
  void begin(const Updater::Fill& fill, const TrainingState& start,
             const std::function<void()>& before_replacing);
  void serve_snapshot() {
    if (snapshots) snapshots->serve();
  }
  bool ready() const { return updater != nullptr; }
  bool at_floor(const LossScale& scale) const { return loss_scaler && loss_scaler->at_floor(scale); }
  void allocate();
  std::uint64_t common_commit() const;
  SwapCommit find_commit(std::uint64_t step) const;
  void require_same_run(const SwapCommit& commit) const;
  // With the states that the swap store is positioned at.
  void go_on(const TrainingState& state);
  void commit(const TrainingState& state);
  void create_scratch();
  double lane_waits_for_nvme(Lane lane) const;
  void split_stalls();
  [[noreturn]] void refuse_overflow_at_floor(const TrainingState& state);
  float gradient_scale(double average, StepResult& result) const;
  void update(std::vector<OptimizerArguments> arguments, float gradient_scale, const TrainingState& state);
};

}  // namespace headrace
