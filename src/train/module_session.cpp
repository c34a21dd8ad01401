#include "headrace/module_session.h"

#include "headrace/errors.h"
#include "src/train/backends.h"
#include "src/train/swap_path.h"

namespace headrace {
namespace {

// Of a model whose modules run one after another, which is what most do: the planner counts by it.
std::vector<HookCall> calls_in_order(std::size_t units) {
  using Kind = HookCall::Kind;
  std::vector<HookCall> calls;
  const auto add = [&](std::size_t unit, std::initializer_list<Kind> kinds) {
    for (const Kind kind : kinds) calls.push_back({kind, static_cast<std::uint32_t>(unit)});
  };
  for (std::size_t unit = 0; unit < units; ++unit) add(unit, {Kind::acquire, Kind::release});
  for (std::size_t unit = units; unit-- > 0;)
    add(unit, {Kind::acquire, Kind::release, Kind::gradient_buffer, Kind::gradients_ready});
  return calls;
}

}  // namespace

struct ModuleSession::Impl {
  ResolvedOptions options;
  RunPlan plan;
  Backends backends;
  std::unique_ptr<Engine> engine;
  TrainingState state;
};

ModuleSession::ModuleSession(const ConfigDraft& draft, std::vector<UnitSpec> units, const LaunchInfo& launch,
                             const CommunicatorMaker& communicator)
    : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  impl.options = draft.resolve_for(units, launch);
  impl.options.engine.average_micro_batches = false;  // the caller's loop weighs its losses
  impl.plan = plan_units(impl.options, units, calls_in_order(units.size()));
  require_fit(impl.options, impl.plan);
  check_swap_path(impl.options);
  impl.backends = make_backends(impl.options, device_arena_bytes(impl.plan), communicator);
  place_by_measured_rates(impl.options, impl.plan, impl.backends.io.get());
  claim_swap_path(impl.options, impl.plan, "", *impl.backends.communicator);
  if (launch.rank == 0) warn_of_poor_paths(impl.options);
  impl.engine =
      std::make_unique<Engine>(*impl.backends.device, *impl.backends.kernels, *impl.backends.communicator,
                               impl.backends.io.get(), impl.plan.request.engine);
  for (UnitSpec& unit : impl.plan.request.units) impl.engine->add_unit(unit);
}

ModuleSession::~ModuleSession() = default;

void ModuleSession::initialise(const Engine::ValueSource& values) {
  impl_->state = {.rng_state = impl_->options.seed,
                  .loss_scale = initial_loss_scale(impl_->plan.request.engine)};
  impl_->engine->initialise(values, impl_->state);
}

void ModuleSession::wait_for_compute() {
  Device& device = *impl_->backends.device;
  device.host_wait(device.record(Lane::compute));
}

StepResult ModuleSession::step(std::span<const double> learning_rates) {
  ++impl_->state.iteration;
  return impl_->engine->step(learning_rates, impl_->state);
}

std::uint64_t ModuleSession::state_hash() {
  return impl_->engine->state_hash(impl_->state);
}

TrainingState& ModuleSession::state() {
  return impl_->state;
}
Engine& ModuleSession::engine() {
  return *impl_->engine;
}
const ResolvedOptions& ModuleSession::options() const {
  return impl_->options;
}
const RunPlan& ModuleSession::plan() const {
  return impl_->plan;
}

}  // namespace headrace
