#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "headrace/log.h"
#include "headrace/state_hash.h"
#include "src/zero/engine_impl.h"
#include "src/zero/initial_states.h"
#include "src/zero/overflow_place.h"
#include "src/zero/update_override.h"

namespace headrace {

void Engine::Impl::allocate() {
  HEADRACE_CHECK(!ready(), "initialise or resume was called twice");
  scratch = std::make_unique<ScratchStore>(
      context, optimizer_blocks(context.units, context.placement, context.options));
  parameters = std::make_unique<ParameterStore>(context, *scratch);
  gradients = std::make_unique<GradientStore>(context, *scratch);
  const UpdateStaging staging =
      plan_staging(context.units, scratch->blocks(), context.options, context.placement);
  states = std::make_unique<StateStore>(context, scratch->blocks(), staging.region_blocks);
  if (context.options.snapshot_buffers > 0)
    snapshots = std::make_unique<StateSnapshots>(context, *states, *parameters);
  updater = std::make_unique<Updater>(context, staging, *states, *gradients, *parameters, snapshots.get());
}

// The newest step that every rank has committed. Ranks differ by one after a crash, and where going back to a
// pinned version was ended half-way: then the newest of some is an earlier step.
std::uint64_t Engine::Impl::common_commit() const {
  const auto commits = states->swap()->commits();
  if (commits.empty())
    throw UsageError(fmt::format("{}: no step was committed yet; start without --resume swap.",
                                 context.options.swap_directories.front()));
  constexpr std::size_t kept = 2;
  std::array<std::uint64_t, kept> own{};  // newest first
  for (std::size_t i = 0; i < kept; ++i)
    own[i] = commits[commits.size() - 1 - std::min(i, commits.size() - 1)].step;
  const auto all = gather_from_ranks(own, context.communicator, context.device, "resume");
  for (const std::uint64_t step : all.front())
    if (std::ranges::all_of(all,
                            [&](const auto& rank) { return std::ranges::find(rank, step) != rank.end(); }))
      return step;
  return *std::ranges::min_element(all, {}, [](const auto& rank) { return rank.front(); })->begin();
}

// The commit of `step`.
SwapCommit Engine::Impl::find_commit(std::uint64_t step) const {
  SwapCommit found;
  for (SwapCommit& commit : states->swap()->commits())
    if (commit.step == step) found = std::move(commit);
  const int rank = context.communicator.rank();
  if (found.metadata.empty())
    throw Error(fmt::format(
        "the ranks' swap stores have no step in common: rank {} no longer holds step {}, the newest "
        "one of another rank. One of them is damaged, or they do not come from the same run.",
        rank, step));
  require_same_run(found);
  return found;
}

// Every rank's commit says the same of the run.
void Engine::Impl::require_same_run(const SwapCommit& commit) const {
  const auto runs =
      gather_from_ranks(hash_bytes(commit.metadata), context.communicator, context.device, "resume");
  for (std::size_t r = 1; r < runs.size(); ++r)
    if (runs[r] != runs[0])
      throw Error(
          fmt::format("step {} of rank {} is not of the same run as that of rank 0: the folders of a swap "
                      "path belong together, and one was exchanged.",
                      commit.step, r));
}

void Engine::Impl::commit(const TrainingState& state) {
  SwapStore* swap = states->swap();
  if (swap == nullptr) return;
  SwapCommit record{.step = state.iteration, .metadata = encode_training_state(state, steps_applied)};
  context.nvme_waits.time([&] { swap->commit(record); });
  // No rank may overwrite the step before until all have committed this one.
  if (context.communicator.size() > 1) context.communicator.barrier("commit");
  swap->release_superseded();
}

void Engine::Impl::create_scratch() {
  const SwapStore* swap = states->swap();
  scratch->create(swap != nullptr ? swap->lost_directories() : std::vector<std::string>{});
}

double Engine::Impl::lane_waits_for_nvme(Lane lane) const {
  double seconds = 0;
  if (parameters && parameters->nvme()) seconds += parameters->nvme()->waited_seconds(lane);
  if (gradients && gradients->nvme()) seconds += gradients->nvme()->waited_seconds(lane);
  return seconds;
}

void Engine::Impl::split_stalls() {
  const LaneTimes compute = context.device.times(Lane::compute),
                  reduce = context.device.times(Lane::communicate);
  upload_stalls.update(compute.stalled_on(Lane::upload) + reduce.stalled_on(Lane::upload),
                       lane_waits_for_nvme(Lane::upload));
  download_stalls.update(compute.stalled_on(Lane::download) + reduce.stalled_on(Lane::download),
                         lane_waits_for_nvme(Lane::download));
}

// A collective. Every rank throws the same.
void Engine::Impl::refuse_overflow_at_floor(const TrainingState& state) {
  throw Error(fmt::format(
      "step {}: the gradient is not finite, and the loss scale is at its minimum of {}, so no smaller one "
      "can help. The first such value is {}. The weights are those of before this step. Something is "
      "beyond fp16's largest number, 65504: {} with a smaller --learning-rate or --clip, or train with "
      "--dtype bf16, which has the range of fp32 and needs no loss scale.",
      state.iteration, state.loss_scale.scale, overflow_place(context, *gradients),
      states->swap() != nullptr ? "go on from the step before (--resume swap)" : "start again"));
}

// Averages over ranks and micro-batches, unscales and clips, all in one factor. Clipping as torch does it.
float Engine::Impl::gradient_scale(double average, StepResult& result) const {
  double scale = average;
  const double clip = context.options.clip;
  if (clip > 0) {
    const double coefficient = clip / (result.gradient_norm + 1e-6);
    result.clipped = coefficient < 1;
    if (result.clipped) scale *= coefficient;
  }
  return static_cast<float>(scale);
}

void Engine::Impl::update(std::vector<OptimizerArguments> arguments, float gradient_scale,
                          const TrainingState& state) {
  const auto start = std::chrono::steady_clock::now();
  const std::uint64_t step = steps_applied + 1;
  for (OptimizerArguments& group : arguments) {
    group.step = step;
    group.seed = context.options.seed;
    group.gradient_scale = gradient_scale;
  }
  if (!context.placement.optimizer.sharded && context.communicator.size() > 1) {
    gradients->replicate();
    context.device.synchronize();
  }
  updater->run(arguments, reversed(step));
  parameters->publish();
  ++steps_applied;
  commit(state);
  context.device.synchronize();
  parameters->settle();
  optimizer_seconds += seconds_since(start);
}

LossScale initial_loss_scale(const EngineOptions& options) {
  return options.dtype == DType::f16 ? LossScaler(options.loss_scale).start() : LossScale{};
}

Engine::Engine(Device& device, DeviceKernels& kernels, Communicator& communicator, IoEngine* io,
               const EngineOptions& options)
    : impl_(std::make_unique<Impl>(device, kernels, communicator, io, options)) {}

Engine::~Engine() {
  try {
    impl_->context.device.synchronize();  // lanes may still use what goes away here
  } catch (...) {  // the failure was thrown where it was waited for, or nobody waits any more
  }
  if (impl_->states) impl_->states->abandon();
  if (impl_->gradients && impl_->gradients->nvme()) impl_->gradients->nvme()->abandon();
  if (impl_->parameters && impl_->parameters->nvme()) impl_->parameters->nvme()->abandon();
}

void UpdateOverride::set(Engine& engine, Update update) {
  EngineContext& context = engine.impl_->context;
  HEADRACE_CHECK(context.placement.optimizer.tier != Tier::device,
                 "the device's update cannot be replaced, only the host's");
  context.host_update = std::move(update);
}

UnitId Engine::add_unit(UnitSpec spec) {
  HEADRACE_CHECK(!impl_->ready(), "add_unit after initialise");
  for (const ParameterSpec& parameter : spec.parameters) {
    if (parameter.group >= impl_->context.options.groups.size())
      throw UsageError(fmt::format("parameter {} names parameter group {}; there are {}.", parameter.name,
                                   parameter.group, impl_->context.options.groups.size()));
    if (!impl_->parameter_names.insert(parameter.name).second)
      throw UsageError(
          fmt::format("parameter {} is registered twice. A tied weight has one owner unit; its other users "
                      "acquire that unit.",
                      parameter.name));
  }
  EngineContext& context = impl_->context;
  UnitPlan unit = plan_unit(make_unit_layout(std::move(spec)), context.placement, context.options,
                            context.communicator.rank(), context.communicator.size());
  if (!context.units.empty())
    unit.first_element = context.units.back().first_element +
                         round_up(context.units.back().layout.numel, parameter_alignment_numel);
  context.units.push_back(std::move(unit));
  return static_cast<UnitId>(context.units.size() - 1);
}

const UnitLayout& Engine::layout(UnitId unit) const {
  return impl_->context.units.at(unit).layout;
}
std::size_t Engine::unit_count() const {
  return impl_->context.units.size();
}

std::uint64_t Engine::parameter_numel() const {
  std::uint64_t numel = 0;
  for (const UnitPlan& unit : impl_->context.units) numel += unit.layout.parameters_numel;
  return numel;
}

void Engine::Impl::begin(const Updater::Fill& fill, const TrainingState& start,
                         const std::function<void()>& before_replacing) {
  allocate();
  if (before_replacing) before_replacing();
  states->create_swap();
  create_scratch();
  updater->refresh(fill);
  parameters->publish();
  commit(start);
  gradients->trace_overflow(at_floor(start.loss_scale));
  context.device.synchronize();
  parameters->settle();
}

void Engine::initialise(const ValueSource& values, const TrainingState& start,
                        const std::function<void()>& before_replacing) {
  const EngineContext& context = impl_->context;
  impl_->begin([&](const OptimizerBlock& block,
                   const StateArrays& states) { fill_initial_states(context, block, states, values); },
               start, before_replacing);
}

TrainingState Engine::resume(const StateCheck& accept) {
  impl_->allocate();
  impl_->states->open_swap();
  const std::uint64_t step = impl_->common_commit();
  SwapStore& swap = *impl_->states->swap();
  TrainingState state = decode_training_state(impl_->find_commit(step).metadata, impl_->steps_applied);
  if (impl_->loss_scaler) state.loss_scale = impl_->loss_scaler->resumed(state.loss_scale);
  if (accept) accept(state);
  impl_->create_scratch();
  swap.position_at(step);
  impl_->go_on(state);
  return state;
}

void Engine::Impl::go_on(const TrainingState& state) {
  states->swap()->release_superseded();
  updater->refresh({});
  parameters->publish();
  gradients->trace_overflow(at_floor(state.loss_scale));
  context.device.synchronize();
  parameters->settle();
}

DeviceMemory& Engine::device_memory() {
  return impl_->context.device_memory;
}
MemoryBudget& Engine::device_budget() {
  return impl_->context.device_budget;
}
MemoryBudget& Engine::host_budget() {
  return impl_->context.host_budget;
}

void Engine::begin_micro_batch() {
  impl_->serve_snapshot();
  impl_->parameters->begin_micro_batch();
  impl_->gradients->begin_micro_batch();
}

std::byte* Engine::acquire(UnitId unit) {
  impl_->serve_snapshot();
  return impl_->parameters->acquire(unit);
}
void Engine::release(UnitId unit) {
  impl_->parameters->release(unit);
}
std::byte* Engine::gradient_buffer(UnitId unit) {
  return impl_->gradients->buffer(unit);
}
void Engine::gradients_ready(UnitId unit) {
  impl_->serve_snapshot();
  impl_->gradients->ready(unit);
}

StepResult Engine::step(double learning_rate, TrainingState& state) {
  return step(learning_rates_of(impl_->context.options.groups, learning_rate), state);
}

StepResult Engine::step(std::span<const double> learning_rates, TrainingState& state) {
  const EngineOptions& options = impl_->context.options;
  std::vector<OptimizerArguments> arguments = arguments_of(options.groups, options.optimizer, learning_rates);
  HEADRACE_CHECK(impl_->gradients->micro_batches() > 0, "step without a micro-batch");
  StepResult result;
  const int summed = options.average_micro_batches ? impl_->gradients->micro_batches() : 1;
  const double average =
      1.0 / (static_cast<double>(impl_->context.communicator.size()) * summed * state.loss_scale.scale);
  const double sum_of_squares = impl_->gradients->finish();
  result.gradient_norm = std::isfinite(sum_of_squares) ? std::sqrt(sum_of_squares) * average
                                                       : std::numeric_limits<double>::infinity();
  result.skipped = !std::isfinite(sum_of_squares);
  if (result.skipped && impl_->at_floor(state.loss_scale)) impl_->refuse_overflow_at_floor(state);
  if (impl_->loss_scaler) state.loss_scale = impl_->loss_scaler->next(state.loss_scale, result.skipped);
  if (result.skipped)
    impl_->commit(state);  // no state changed, but the data and the schedule went on
  else
    impl_->update(std::move(arguments), impl_->gradient_scale(average, result), state);
  impl_->gradients->reset();
  impl_->gradients->trace_overflow(impl_->at_floor(state.loss_scale));
  impl_->parameters->end_micro_batches();
  impl_->split_stalls();
  result.step = impl_->steps_applied;
  return result;
}

std::uint64_t Engine::steps_applied() const {
  return impl_->steps_applied;
}

std::uint64_t Engine::state_hash(const TrainingState& state) {
  std::uint64_t sum = 0;
  const EngineContext& context = impl_->context;
  const StateFormat format = kept_format(context.options);
  impl_->updater->visit([&](const OptimizerBlock& block, const StateArrays& arrays) {
    const UnitPlan& unit = context.units[block.unit];
    // Replicated states are hashed once: every rank takes its own shard's part of them.
    const std::uint64_t from = std::max(block.range.first, unit.own.first);
    const std::uint64_t to = std::min(block.range.end(), unit.own.end());
    if (from >= to) return;
    for_each_parameter(unit.layout, {from, to - from}, [&](std::size_t p, std::uint64_t first, Range part) {
      sum += hash_states(unit.layout.spec.parameters[p].name, first, format, arrays,
                         part.first - block.range.first, part.numel);
    });
  });
  impl_->context.communicator.all_reduce(std::span<std::uint64_t>(&sum, 1), Traffic::control, "state hash");
  impl_->context.device.synchronize();
  return finish_state_hash(sum, impl_->steps_applied, state.rng_state, state.loss_scale.scale,
                           state.data_position);
}

void Engine::visit_optimizer_state(const StateVisitor& visit) {
  const StateFormat format = kept_format(impl_->context.options);
  std::vector<float> values;
  impl_->updater->visit([&](const OptimizerBlock& block, const StateArrays& arrays) {
    values.resize(block.range.numel);
    read_master(format.master, arrays.master, 0, values.size(), values.data());
    visit(block.unit, block.range.first, 0, values);
    for (int m = 0; m < moment_count(format); ++m) {
      read_moment(format, m, arrays.moments[static_cast<std::size_t>(m)], 0, values.size(), values.data());
      visit(block.unit, block.range.first, m + 1, values);
    }
  });
}

std::vector<float> Engine::read_parameters(UnitId unit) {
  EngineContext& context = impl_->context;
  const std::uint64_t numel = context.units.at(unit).layout.numel;
  std::vector<std::byte> raw(numel * context.element_bytes());
  const std::byte* whole = acquire(unit);
  context.device.copy(Lane::compute, raw.data(), whole, raw.size());
  release(unit);
  context.device.synchronize();
  std::vector<float> values(numel);
  for (std::uint64_t i = 0; i < numel; ++i) values[i] = element_at(raw.data(), i, context.options.dtype);
  return values;
}

EngineCounters Engine::counters() const {
  const EngineContext& context = impl_->context;
  EngineCounters counters;
  counters.optimizer_seconds = impl_->optimizer_seconds;
  if (context.io != nullptr) counters.io = context.io->counters();
  counters.traffic = context.communicator.counters();
  // By link and NVMe as of the last step.
  counters.upload_stall_seconds = impl_->upload_stalls.link();
  counters.download_stall_seconds = impl_->download_stalls.link();
  counters.nvme_stall_seconds =
      context.nvme_waits.seconds() + impl_->upload_stalls.nvme() + impl_->download_stalls.nvme();
  counters.communicate_stall_seconds = context.device.times(Lane::compute).stalled_on(Lane::communicate);
  return counters;
}

}  // namespace headrace
