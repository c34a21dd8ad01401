#include "tests/support/unsharded_oracle.h"

#include <cmath>
#include <limits>

#include "headrace/optimizer_update.h"
#include "headrace/state_hash.h"
#include "src/zero/initial_values.h"

namespace headrace::testing {
namespace {

// The states of one whole unit, in one piece; where the parameters are the master, they are in its place.
struct OracleUnit {
  UnitLayout layout;
  std::uint64_t first_element = 0;
  StateFormat format;
  std::vector<float> memory;  // aligned for every type of state
  StateArrays states;
  std::vector<float> gradient;
};

StateFormat kept_format(const EngineOptions& options) {
  StateFormat format = options.state_format();
  if (format.master == MasterDType::none)
    format.master = options.dtype == DType::f32 ? MasterDType::f32 : MasterDType::bf16;
  return format;
}

float rounded(float value, DType dtype) {
  std::byte stored[sizeof(float)];
  set_element(stored, 0, dtype, value);
  return element_at(stored, 0, dtype);
}

std::vector<OracleUnit> initial_units(const EngineRun& run) {
  std::vector<OracleUnit> units;
  std::uint64_t first_element = 0;
  for (const UnitSpec& spec : run.units) {
    OracleUnit unit{.layout = make_unit_layout(spec),
                    .first_element = first_element,
                    .format = kept_format(run.options),
                    .memory = {},
                    .states = {},
                    .gradient = {}};
    first_element += round_up(unit.layout.numel, parameter_alignment_numel);
    unit.gradient.assign(unit.layout.numel, 0.0f);
    unit.memory.assign(divide_up(state_bytes(unit.format, unit.layout.numel), sizeof(float)), 0.0f);
    unit.states =
        state_arrays(unit.format, reinterpret_cast<std::byte*>(unit.memory.data()), unit.layout.numel);
    for (std::size_t p = 0; p < unit.layout.offsets.size(); ++p) {
      std::vector<float> values(spec.parameters[p].numel());
      initial_values(spec.parameters[p], run.options.seed, 0, values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint64_t at = unit.layout.offsets[p] + i;
        if (unit.format.master == MasterDType::f32)
          reinterpret_cast<float*>(unit.states.master)[at] = values[i];
        else
          reinterpret_cast<bf16*>(unit.states.master)[at] = to_bf16(values[i]);
      }
    }
    units.push_back(std::move(unit));
  }
  return units;
}

// The canonical gradient of one unit: per micro-batch the ranks' rounded gradients summed in rank order,
// micro-batches added in order, rounded once. Rounding of the per-rank gradient happens where the module
// stores it.
void canonical_gradient(const EngineRun& run, OracleUnit& unit, std::size_t index, std::uint64_t step,
                        std::uint64_t first_sample, float gain) {
  const DType dtype = run.options.dtype;
  std::vector<float> master(unit.layout.numel);
  read_master(unit.format.master, unit.states.master, 0, master.size(), master.data());
  for (std::size_t p = 0; p < unit.layout.offsets.size(); ++p)
    for (std::uint64_t i = 0; i < unit.layout.spec.parameters[p].numel(); ++i) {
      const std::uint64_t at = unit.layout.offsets[p] + i;
      const float parameter = rounded(master[at], dtype);
      float total = 0;
      std::uint64_t sample = first_sample;
      for (int m = 0; m < run.options.accumulation; ++m) {
        float sum = 0;
        for (int r = 0; r < run.world_size; ++r, ++sample) {
          const float gradient = rounded(gain * (parameter - toy_target(sample, step, index, at)), dtype);
          sum = r == 0 ? gradient : sum + gradient;
        }
        total = m == 0 ? sum : total + sum;
      }
      unit.gradient[at] = rounded(total, dtype);
    }
}

double sum_of_squares(const std::vector<OracleUnit>& units) {
  double sum = 0;
  for (const OracleUnit& unit : units)
    for (std::uint64_t first = 0; first < unit.layout.numel; first += norm_chunk_numel) {
      const std::uint64_t numel = std::min(norm_chunk_numel, unit.layout.numel - first);
      std::vector<float> copy(unit.gradient.begin() + static_cast<std::ptrdiff_t>(first),
                              unit.gradient.begin() + static_cast<std::ptrdiff_t>(first + numel));
      double partial = 0;
      round_and_norm(copy.data(), copy.data(), DType::f32, numel, &partial);
      sum += partial;
    }
  return sum;
}

void update(const EngineRun& run, OracleUnit& unit, const OptimizerArguments& arguments,
            const std::vector<double>& rates) {
  UpdateSpan whole;
  whole.format = run.options.state_format();
  whole.state = unit.states;
  whole.parameter_dtype = run.options.dtype;
  whole.gradient = unit.gradient.data();
  whole.gradient_dtype = DType::f32;
  whole.numel = unit.layout.numel;
  whole.first_element = unit.first_element;
  for (std::size_t p = 0; p < unit.layout.offsets.size(); ++p) {
    const ParameterSpec& spec = unit.layout.spec.parameters[p];
    if (spec.numel() == 0) continue;  // may lie past the end
    OptimizerArguments group = arguments;
    const ParameterGroup& own = run.options.groups[spec.group];
    group.learning_rate = rates.empty() ? own.learning_rate_factor * run.learning_rate : rates[spec.group];
    if (own.beta1) group.beta1 = *own.beta1;
    if (own.beta2) group.beta2 = *own.beta2;
    if (own.epsilon) group.epsilon = *own.epsilon;
    if (own.maximize) group.maximize = *own.maximize;
    if (!spec.weight_decay) group.weight_decay = 0;
    if (own.weight_decay) group.weight_decay = *own.weight_decay;
    optimizer_update(part_of(whole, unit.layout.offsets[p], spec.numel()), group, Isa::scalar);
  }
}

std::uint64_t hash_of(const OracleUnit& unit, const ParameterSpec& spec, std::uint64_t at) {
  std::vector<float> values(spec.numel());
  read_master(unit.format.master, unit.states.master, at, values.size(), values.data());
  std::uint64_t sum = hash_values(state_key(spec.name, StateKind::master), 0, values);
  for (int m = 0; m < moment_count(unit.format); ++m) {
    read_moment(unit.format, m, unit.states.moments[static_cast<std::size_t>(m)], at, values.size(),
                values.data());
    sum += hash_values(state_key(spec.name, static_cast<StateKind>(m + 1)), 0, values);
  }
  return sum;
}

std::uint64_t hash(const std::vector<OracleUnit>& units, std::uint64_t steps, std::uint64_t seed,
                   double loss_scale, std::uint64_t position) {
  std::uint64_t sum = 0;
  for (const OracleUnit& unit : units)
    for (std::size_t p = 0; p < unit.layout.offsets.size(); ++p)
      sum += hash_of(unit, unit.layout.spec.parameters[p], unit.layout.offsets[p]);
  return finish_state_hash(sum, steps, seed, loss_scale, position);
}

}  // namespace

OracleResult run_oracle(const EngineRun& run) {
  std::vector<OracleUnit> units = initial_units(run);
  OracleResult result;
  LossScale scale = initial_loss_scale(run.options);
  std::uint64_t applied = 0;
  const auto per_step = static_cast<std::uint64_t>(run.world_size * run.options.accumulation);
  for (int s = 0; s < run.steps; ++s) {
    ToyModule module;
    if (run.before_step) run.before_step(0, static_cast<std::uint64_t>(s), module);
    const float gain = module.gradient_gain * static_cast<float>(scale.scale);
    const std::uint64_t first_sample = static_cast<std::uint64_t>(s) * per_step;
    for (std::size_t u = 0; u < units.size(); ++u)
      canonical_gradient(run, units[u], u, static_cast<std::uint64_t>(s), first_sample, gain);
    const double average = 1.0 / (static_cast<double>(per_step) * scale.scale);
    const double squares = sum_of_squares(units);
    const bool overflow = !std::isfinite(squares);
    const double norm = overflow ? std::numeric_limits<double>::infinity() : std::sqrt(squares) * average;
    const double coefficient = run.options.clip > 0 ? run.options.clip / (norm + 1e-6) : 1.0;
    result.gradient_norms.push_back(norm);
    if (run.options.dtype == DType::f16) scale = LossScaler(run.options.loss_scale).next(scale, overflow);
    result.scales.push_back(scale.scale);
    if (overflow) continue;
    if (coefficient < 1) ++result.clipped_steps;
    OptimizerArguments arguments = run.options.optimizer;
    arguments.step = ++applied;
    arguments.seed = run.options.seed;
    arguments.gradient_scale = static_cast<float>(coefficient < 1 ? average * coefficient : average);
    const std::vector<double> rates =
        run.group_rates ? run.group_rates(static_cast<std::uint64_t>(s)) : std::vector<double>{};
    for (OracleUnit& unit : units) update(run, unit, arguments, rates);
  }
  result.skipped_steps = run.steps - static_cast<int>(applied);
  result.hash =
      hash(units, applied, run.options.seed, scale.scale, static_cast<std::uint64_t>(run.steps) * per_step);
  return result;
}

}  // namespace headrace::testing
