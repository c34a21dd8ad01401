#include "tests/support/unsharded_oracle.h"

#include <cmath>
#include <limits>

#include "headrace/optimizer_update.h"
#include "headrace/state_hash.h"
#include "src/zero/initial_values.h"
#include "tests/support/adam_arrays.h"

namespace headrace::testing {
namespace {

struct OracleUnit {
  UnitLayout layout;
  std::vector<float> master, exp_avg, exp_avg_sq, gradient;
};

float rounded(float value, DType dtype) {
  std::byte stored[sizeof(float)];
  set_element(stored, 0, dtype, value);
  return element_at(stored, 0, dtype);
}

std::vector<OracleUnit> initial_units(const EngineRun& run) {
  std::vector<OracleUnit> units;
  for (const UnitSpec& spec : run.units) {
    OracleUnit unit{
        .layout = make_unit_layout(spec), .master = {}, .exp_avg = {}, .exp_avg_sq = {}, .gradient = {}};
    for (auto* array : {&unit.master, &unit.exp_avg, &unit.exp_avg_sq, &unit.gradient})
      array->assign(unit.layout.numel, 0.0f);
    for (std::size_t p = 0; p < unit.layout.offsets.size(); ++p)
      initial_values(spec.parameters[p], run.options.seed, 0,
                     {unit.master.data() + unit.layout.offsets[p], spec.parameters[p].numel()});
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
  for (std::size_t p = 0; p < unit.layout.offsets.size(); ++p)
    for (std::uint64_t i = 0; i < unit.layout.spec.parameters[p].numel(); ++i) {
      const std::uint64_t at = unit.layout.offsets[p] + i;
      const float parameter = rounded(unit.master[at], dtype);
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

void update(const EngineRun& run, OracleUnit& unit, const OptimizerArguments& arguments) {
  for (std::size_t p = 0; p < unit.layout.offsets.size(); ++p) {
    const ParameterSpec& spec = unit.layout.spec.parameters[p];
    OptimizerArguments group = arguments;
    group.weight_decay = spec.weight_decay ? run.options.optimizer.weight_decay : 0.0;
    const std::uint64_t at = unit.layout.offsets[p];
    optimizer_update(test::AdamArrays{.master = unit.master.data() + at,
                                      .exp_avg = unit.exp_avg.data() + at,
                                      .exp_avg_sq = unit.exp_avg_sq.data() + at,
                                      .gradient = unit.gradient.data() + at,
                                      .gradient_dtype = DType::f32,
                                      .low_precision = nullptr,
                                      .numel = spec.numel()},
                     group, Isa::scalar);
  }
}

std::uint64_t hash(const std::vector<OracleUnit>& units, std::uint64_t steps, std::uint64_t seed,
                   double loss_scale, std::uint64_t position) {
  std::uint64_t sum = 0;
  for (const OracleUnit& unit : units)
    for (std::size_t p = 0; p < unit.layout.offsets.size(); ++p) {
      const ParameterSpec& spec = unit.layout.spec.parameters[p];
      const std::uint64_t at = unit.layout.offsets[p];
      sum += hash_values(state_key(spec.name, StateKind::master), 0, {unit.master.data() + at, spec.numel()});
      sum +=
          hash_values(state_key(spec.name, StateKind::exp_avg), 0, {unit.exp_avg.data() + at, spec.numel()});
      sum += hash_values(state_key(spec.name, StateKind::exp_avg_sq), 0,
                         {unit.exp_avg_sq.data() + at, spec.numel()});
    }
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
    arguments.learning_rate = run.learning_rate;
    arguments.step = ++applied;
    arguments.gradient_scale = static_cast<float>(coefficient < 1 ? average * coefficient : average);
    for (OracleUnit& unit : units) update(run, unit, arguments);
  }
  result.skipped_steps = run.steps - static_cast<int>(applied);
  result.hash =
      hash(units, applied, run.options.seed, scale.scale, static_cast<std::uint64_t>(run.steps) * per_step);
  return result;
}

}  // namespace headrace::testing
