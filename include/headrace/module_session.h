// The engine under a model that the caller has: configuration, plan, backends and engine, built in the order
// that refuses early. What the PyTorch front end stands on; the caller makes the model's calls (units.h).
//
//   ModuleSession session(draft, units, launch_info());
//   session.initialise(values);
//   session.engine().begin_micro_batch(); ...
//
// Threads: one owner thread. Construction and every call of the engine may block.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/backends.h"
#include "headrace/config.h"
#include "headrace/engine.h"
#include "headrace/train.h"

namespace headrace {

class ModuleSession {
 public:
  // Unit i is unit i of the engine. Collective. Throws UsageError for settings that have no meaning for such
  // a model, DoesNotFit with the ledger; nothing has been created then.
  // `communicator`: the caller's own; empty: MPI's, as the launcher says.
  ModuleSession(const ConfigDraft& draft, std::vector<UnitSpec> units, const LaunchInfo& launch,
                const CommunicatorMaker& communicator = {});
  ~ModuleSession();

  // Fills the states, from values or the units' distributions (Engine::initialise). Refuses to replace an
  // earlier run's swap store unless the options say so.
  void initialise(const Engine::ValueSource& values);

  // Blocks until what was enqueued on the compute lane is done: memory that acquire() and gradient_buffer()
  // gave may then be used by the host.
  void wait_for_compute();

  StepResult step(std::span<const double> learning_rates);
  std::uint64_t state_hash();
  TrainingState& state();

  Engine& engine();
  const ResolvedOptions& options() const;
  const RunPlan& plan() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
