#include "src/tune/swap_pipeline.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "headrace/backends.h"
#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "headrace/optimizer_blocks.h"
#include "headrace/planner.h"
#include "src/tune/pattern_device.h"
#include "src/zero/update_override.h"

namespace headrace::tune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t unit_numel = std::uint64_t{1} << 24;  // of every unit but the last
constexpr double learning_rate = 1e-4;
constexpr float initial_value = 0.02f;

std::vector<UnitSpec> make_units(std::uint64_t parameters) {
  std::vector<UnitSpec> units;
  for (std::uint64_t first = 0; first < parameters; first += unit_numel) {
    const std::string name = fmt::format("unit {}", units.size());
    const auto numel = static_cast<std::int64_t>(std::min(parameters - first, unit_numel));
    units.push_back({.name = name, .parameters = {{.name = name + " weight", .shape = {numel}}}});
  }
  return units;
}

// Addresses for parameters, gradients, buckets and norms; they cost nothing.
Bytes device_capacity(std::uint64_t parameters) {
  constexpr Bytes buckets = Bytes{64} << 20, a_parameter = 8;
  return round_up(buckets + a_parameter * parameters, 4096);
}

BackendOptions lane_options() {
  return {.device_memory_bytes = 1 << 20, .launch = {}};
}

EngineOptions engine_options(const SwapPipelineOptions& options) {
  EngineOptions engine;
  engine.stage = 1;
  engine.optimizer_tier = Tier::nvme;
  engine.clip = 0;
  engine.optimizer = optimizer_of(options.states);
  engine.master_dtype = options.states.master;
  engine.moment_dtype = options.states.moments;
  engine.host_memory_bytes = options.host_memory_bytes;
  engine.swap_block_bytes = options.point.block_bytes;
  engine.swap_buffers = options.point.buffers;
  engine.swap_cache_bytes = options.cache_bytes;
  engine.swap_directories = options.folders;
  engine.swap_path_rates = options.path_rates;
  engine.swap_parity = options.parity;
  engine.durability = options.durability;
  return engine;
}

}  // namespace

struct SwapPipeline::Impl {
  std::unique_ptr<Device> lanes;
  PatternDevice device;
  PatternKernels kernels;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<IoEngine> io;
  UpdateKind kind = UpdateKind::real;
  double update_seconds = 0;
  std::unique_ptr<Engine> engine;
  std::vector<UnitId> units;
  std::uint64_t blocks = 0;
  Bytes block_bytes;
  TrainingState state;

  explicit Impl(const SwapPipelineOptions& options)
      : lanes(open_device(lane_options())),
        device(*lanes, device_capacity(options.parameters)),
        communicator(open_communicator(lane_options(), device)),
        io(open_io(options.point)),
        block_bytes(state_bytes(options.states, block_numel(options.point.block_bytes, options.states))) {
    engine = std::make_unique<Engine>(device, kernels, *communicator, io.get(), engine_options(options));
    UpdateOverride::set(*engine,
                        [this](std::span<const GroupSpan> spans, std::span<const OptimizerArguments> groups,
                               std::uint64_t update_numel) { update(spans, groups, update_numel); });
    add_units(options);
    if (options.reuse)
      state = engine->resume();
    else
      engine->initialise([](const ParameterSpec&, std::uint64_t, std::span<float> out) {
        std::fill(out.begin(), out.end(), initial_value);
      });
  }

  void add_units(const SwapPipelineOptions& options) {
    for (const UnitSpec& unit : make_units(options.parameters)) {
      units.push_back(engine->add_unit(unit));
      blocks +=
          divide_up(unit.parameters.front().numel(), block_numel(options.point.block_bytes, options.states));
    }
  }

  void update(std::span<const GroupSpan> spans, std::span<const OptimizerArguments> groups,
              std::uint64_t update_numel) {
    if (kind == UpdateKind::null) return;
    const auto start = Clock::now();
    optimizer_update_parallel(spans, groups, update_numel);
    update_seconds += seconds_since(start);
  }

  void give_gradients() {
    engine->begin_micro_batch();
    for (const UnitId unit : units) {
      engine->gradient_buffer(unit);
      engine->gradients_ready(unit);
    }
    device.synchronize();
  }
};

SwapPipeline::SwapPipeline(const SwapPipelineOptions& options) : impl_(std::make_unique<Impl>(options)) {}
SwapPipeline::~SwapPipeline() = default;

SwapStep SwapPipeline::step(UpdateKind kind) {
  Impl& impl = *impl_;
  impl.give_gradients();
  impl.kind = kind;
  impl.update_seconds = 0;
  ++impl.state.iteration;
  const IoCounters before = impl.engine->counters().io;
  const auto start = Clock::now();
  const StepResult result = impl.engine->step(learning_rate, impl.state);
  const double seconds = seconds_since(start);
  HEADRACE_CHECK(!result.skipped, "a step of the pattern's gradients was skipped");
  const IoCounters after = impl.engine->counters().io;
  return {.seconds = seconds,
          .nvme_stall_seconds = after.wait_seconds - before.wait_seconds,
          .update_seconds = impl.update_seconds,
          .read_bytes = after.read_bytes - before.read_bytes,
          .written_bytes = after.written_bytes - before.written_bytes};
}

std::uint64_t SwapPipeline::blocks() const {
  return impl_->blocks;
}

Bytes SwapPipeline::block_bytes() const {
  return impl_->block_bytes;
}

Bytes SwapPipeline::host_bytes() const {
  return impl_->engine->host_budget().peak_total();
}

std::string_view SwapPipeline::io_name() const {
  return impl_->io->name();
}

OptimizerArguments optimizer_of(const StateFormat& states) {
  OptimizerArguments optimizer;
  optimizer.kind = states.kind;
  optimizer.amsgrad = states.amsgrad;
  optimizer.momentum = states.momentum ? 0.9 : 0;
  optimizer.weight_decay = 0.1;
  return optimizer;
}

Bytes planned_host_bytes(const SwapPipelineOptions& options) {
  PlanRequest request;
  request.units = make_units(options.parameters);
  request.engine = engine_options(options);
  return plan_memory(request).host.total();
}

std::unique_ptr<IoEngine> open_io(const SwapPoint& point) {
  IoEngineOptions options;
  options.queue_depth = point.queue_depth;
  options.request_bytes = point.request_bytes;
  return make_io(point.io, options);
}

}  // namespace headrace::tune
