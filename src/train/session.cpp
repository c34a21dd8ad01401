#include "src/train/session.h"

#include <fmt/format.h>

#include "headrace/errors.h"
#include "headrace/log.h"
#include "headrace/state_hash.h"
#include "src/train/run_identity.h"
#include "src/train/swap_path.h"

namespace headrace {
namespace {

// Ranks with different options would wait for each other in different places (FIELD-CASES L1).
void check_ranks_agree(const ResolvedOptions& options, const std::string& run, Communicator& communicator,
                       Device& device) {
  const auto hashes = gather_from_ranks(hash_bytes(options.effective_config + run), communicator, device,
                                        "options of the ranks");
  for (std::size_t r = 1; r < hashes.size(); ++r)
    if (hashes[r] != hashes[0])
      throw UsageError(fmt::format(
          "rank {} was started with other options or other data than rank 0. Start every rank with the same "
          "command on the same data; --print-config shows what one sees.",
          r));
}

// The last moment at which a stop leaves everything as it was: all ranks go on, or none does.
void stop_or_replace(StopSignals& signals, Communicator& communicator, Device& device) {
  signals.begin_replacing();
  for (const int requested : gather_from_ranks(signals.requested() ? 1 : 0, communicator, device, "stop"))
    if (requested != 0) throw StoppedBeforeStart();
}

// The CPU device's memory is host memory: taken whole at the start, as a device has its memory, but not
// before every rank has checked what is available.
void take_arena(Device& device) {
  if (!device.info().host_addressable) return;
  device.fill_zero(Lane::compute, device.arena(), device.info().memory_capacity_bytes);
  device.synchronize();
}

}  // namespace

RunInputs check_inputs(const ResolvedOptions& options) {
  if (options.data_path.empty())
    throw UsageError("no data is given: --data FILE, or a folder of text files.");
  if (options.eval_path.empty() && options.eval_every > 0)
    throw UsageError("--eval-every needs --eval-data FILE: there is no held-out text to evaluate.");
  Corpus training(options.data_path, options);
  std::optional<Corpus> held_out;
  if (!options.eval_path.empty()) held_out.emplace(options.eval_path, options);
  check_swap_path(options);
  refuse_inside_data(options, "--metrics", options.metrics_path);
  RunPlan plan = plan_run(options);
  require_fit(options, plan);
  return {std::move(training), std::move(held_out), std::move(plan)};
}

void Session::open_backends(StopSignals& signals) {
  backends = make_backends(options, device_arena_bytes(inputs.plan));
  signals.end_connecting();
  run = run_identity(options, inputs.training.bytes);
  check_ranks_agree(options, run, *backends.communicator, *backends.device);
  place_by_measured_rates(options, inputs.plan, backends.io.get());
  claim_swap_path(options, inputs.plan, *backends.communicator);
  if (rank() == 0) warn_of_poor_paths(options);
  take_arena(*backends.device);
}

void Session::build(StopSignals& signals) {
  engine = std::make_unique<Engine>(*backends.device, *backends.kernels, *backends.communicator,
                                    backends.io.get(), inputs.plan.request.engine);
  model = make_model(options.model, options.model_options);
  ops = ops_factory(options.device)(*backends.device, engine->device_memory());
  Model::Context context{.device = backends.device.get(),
                         .memory = &engine->device_memory(),
                         .hooks = engine.get(),
                         .ops = ops.get(),
                         .units = {},
                         .layouts = {}};
  std::vector<UnitSpec> units = model->unit_specs();
  assign_groups(units, options);
  for (UnitSpec& spec : units) context.units.push_back(engine->add_unit(std::move(spec)));
  for (const UnitId unit : context.units) context.layouts.push_back(&engine->layout(unit));
  if (options.resume_swap) {
    state = engine->resume([&](const TrainingState& stored) {
      const RunDifference differs = compare_runs(stored.run, run, path_list(options.swap_paths));
      if (differs.text.empty() || rank() != 0) return;
      if (differs.longer_only)
        log_info(differs.text);
      else
        log_warning(differs.text);
    });
    state.run = run;
  } else {
    state = {
        .rng_state = options.seed, .loss_scale = initial_loss_scale(inputs.plan.request.engine), .run = run};
    engine->initialise({}, state,
                       [&] { stop_or_replace(signals, *backends.communicator, *backends.device); });
    if (rank() == 0) remove_stores_of_further_ranks(options);
  }
  model->bind(std::move(context));
}

}  // namespace headrace
