#include "src/train/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/log.h"
#include "headrace/state_hash.h"
#include "headrace/swap_store.h"
#include "src/train/checkpoint_choice.h"
#include "src/train/checkpoint_space.h"
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
      throw UsageError(
          fmt::format("rank {} was started with other options, other data or another model folder than rank "
                      "0. Start every rank with the same "
                      "command on the same files; --print-config shows what one sees.",
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

// A run that goes on has its weights in the swap store.
std::optional<ModelWeights> open_weights(const ResolvedOptions& options, const RunPlan& plan,
                                         const std::string& checkpoint) {
  if (options.model_folder.empty() || options.resume_swap || !checkpoint.empty()) return std::nullopt;
  return ModelWeights::open(options.model_folder, options.model, plan.request.units);
}

// Rank 0's, for all.
std::uint64_t draw_run_id(Communicator& communicator, Device& device) {
  std::random_device random;
  const std::uint64_t id = (std::uint64_t{random()} << 32 | random()) | 1;
  return gather_from_ranks(id, communicator, device, "run id").front();
}

// An earlier run's states, which a damaged checkpoint must not cost.
bool replaces_store(const ResolvedOptions& options) {
  return options.engine.optimizer_tier == Tier::nvme &&
         std::ranges::any_of(options.engine.swap_directories, files::folder_exists);
}

// Steps that a run goes back behind, to the one of a pinned checkpoint.
void warn_of_steps_behind(const ResolvedOptions& options, std::uint64_t step) {
  const std::vector<SwapCommit> commits = SwapStore::describe(options.engine.swap_directories).commits;
  if (commits.empty() || commits.back().step <= step) return;
  log_warning(
      fmt::format("the swap store is at step {0}: what came after step {1} is done anew. --resume swap would "
                  "have gone on "
                  "from step {0}.",
                  commits.back().step, step));
}

// Where they lie in the files is the same on all ranks, or these have other files.
std::string weights_text(const std::optional<ModelWeights>& weights) {
  return weights ? fmt::format("{:016x}", weights->fingerprint()) : "";
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
  refuse_inside_data(options, "--checkpoint-dir", options.checkpoint.directory);
  check_checkpoint_directory(options);
  RunPlan plan = plan_run(options);
  std::string checkpoint = checkpoint_to_load(options);
  std::optional<ModelWeights> weights = open_weights(options, plan, checkpoint);
  require_fit(options, plan);
  return {std::move(training), std::move(held_out), std::move(weights), std::move(plan),
          std::move(checkpoint)};
}

void Session::open_backends(StopSignals& signals) {
  backends = make_backends(options, device_arena_bytes(inputs.plan));
  signals.end_connecting();
  run = run_identity(options, inputs.training.tokens);
  check_ranks_agree(
      options, run + weights_text(inputs.weights) + inputs.checkpoint + options.checkpoint.pin_to_go_back_to,
      *backends.communicator, *backends.device);
  open_saver(options, backends);
  place_by_measured_rates(options, inputs.plan, backends.io.get());
  claim_swap_path(options, inputs.plan, inputs.checkpoint, *backends.communicator);
  require_room_for_checkpoints(options, inputs.plan, rank() == 0);
  if (rank() == 0 && !options.checkpoint.directory.empty()) claim_checkpoints(options, goes_on_from());
  if (rank() == 0 && options.checkpoint.directory.empty() && !options.checkpoint.resume.empty())
    log_info("no checkpoint is saved by this run: --checkpoint-dir DIR says where to");
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
  begin(signals);
  model->bind(std::move(context));
}

void Session::begin(StopSignals& signals) {
  state = {.rng_state = options.seed,
           .loss_scale = initial_loss_scale(inputs.plan.request.engine),
           .run = run,
           .run_id = draw_run_id(*backends.communicator, *backends.device)};
  const auto replace = [&] { stop_or_replace(signals, *backends.communicator, *backends.device); };
  if (options.resume_swap) {
    state = continue_in_store();
  } else if (!inputs.checkpoint.empty()) {
    const std::uint64_t id = state.run_id;
    load_states(replace);
    state.run_id = id;  // two runs may go on from one checkpoint
  } else {
    Engine::ValueSource values;
    if (inputs.weights)
      values = [this](const ParameterSpec& parameter, std::uint64_t first, std::span<float> out) {
        inputs.weights->read(parameter, first, out);
      };
    engine->initialise(values, state, replace);
  }
  state.run = run;
  if (!options.resume_swap && rank() == 0) remove_stores_of_further_ranks(options);
  if (!options.checkpoint.directory.empty()) checkpointer = make_checkpointer();
}

TrainingState Session::continue_in_store() {
  const CheckpointSettings& from = options.checkpoint;
  if (from.go_back_to.empty())
    return engine->resume([&](const TrainingState& stored) {
      check_same_run(stored, "--resume swap", path_list(options.swap_paths));
    });
  if (rank() == 0)
    log_info(fmt::format("{} is pinned in the swap store, which goes back to it", from.go_back_to));
  const std::uint64_t id = state.run_id;
  TrainingState stored = engine->go_back(from.pin_to_go_back_to, [&](const TrainingState& found) {
    check_same_run(found, "--resume", from.go_back_to);
    if (rank() == 0) warn_of_steps_behind(options, found.iteration);
  });
  stored.run_id = id;  // two runs may go on from one checkpoint
  return stored;
}

std::unique_ptr<Checkpointer> Session::make_checkpointer() {
  const bool beside = backends.saver_device != nullptr;
  return std::make_unique<Checkpointer>(*engine, *backends.io,
                                        beside ? *backends.saver_communicator : *backends.communicator,
                                        beside ? *backends.saver_device : *backends.device,
                                        inputs.plan.request.engine, checkpoint_options(options));
}

void Session::load_states(const std::function<void()>& before_replacing) {
  std::vector<std::string> damage;
  const LoadOptions load{.weights_only = !options.checkpoint.weights.empty(),
                         .accept =
                             [&](const CheckpointFacts& stored) {
                               if (rank() == 0) report_conversions(options, stored);
                               if (options.checkpoint.weights.empty())
                                 check_same_run(stored.state, "--resume", inputs.checkpoint);
                             },
                         .before_replacing = before_replacing,
                         .check_first = replaces_store(options),
                         .on_damage = [&](const std::string& problem) { damage.push_back(problem); },
                         .start = state};
  state = load_checkpoint(inputs.checkpoint, *engine, *backends.io, load);
  warn_of_damage(inputs.checkpoint, damage, *backends.communicator, *backends.device);
}

void Session::check_same_run(const TrainingState& stored, std::string_view resume,
                             const std::string& place) const {
  const RunDifference differs = compare_runs(stored.run, run, resume, place);
  if (differs.text.empty() || rank() != 0) return;
  if (differs.longer_only)
    log_info(differs.text);
  else
    log_warning(differs.text);
}

}  // namespace headrace
