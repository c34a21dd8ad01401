#include "src/tune/tune_space.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "headrace/optimizer_blocks.h"
#include "src/tune/swap_pipeline.h"

namespace headrace::tune {
namespace {

constexpr Bytes kib = 1 << 10, mib = 1 << 20;
constexpr std::uint64_t smallest_trial = 1 << 18, largest_trial = std::uint64_t{1} << 28;
constexpr std::uint32_t automatic = 0;  // beside what the engine mostly chooses, whose neighbours are its own
constexpr Bytes times_the_buffers = 4;  // that a trial has at least

Bytes buffer_bytes(const SwapPoint& point) {
  return point.buffers * point.block_bytes;
}

template <class Value>
std::uint32_t index_of(const std::vector<Value>& values, Value value) {
  const auto found = std::find(values.begin(), values.end(), value);
  return found == values.end() ? 0 : static_cast<std::uint32_t>(found - values.begin());
}

}  // namespace

TuneSpace make_tune_space(Bytes memory_limit, std::uint64_t trial_parameters, bool has_io_uring,
                          const std::vector<SwapPlacement>& placements, std::uint32_t parity,
                          const StateFormat& states) {
  // Three quarters and three halves of the powers of two: whole norm chunks of Adam's states in fp32.
  TuneSpace space{
      .blocks = {384 * kib, 768 * kib, 1536 * kib, 3 * mib, 4608 * kib, 6 * mib, 9 * mib, 12 * mib, 18 * mib,
                 24 * mib, 36 * mib, 48 * mib, 72 * mib, 96 * mib},
      .buffers = {3, 4, 6, 8, 12, 16, 24, 32, 48, 64},
      .depths = {4, 8, 16, automatic, 32, 64, 128},
      .requests = {128 * kib, 256 * kib, 512 * kib, 1 * mib, automatic, 2 * mib, 4 * mib, 8 * mib},
      .engines = {},
      .placement_paths = {},
      .parity = parity,
      .states = states,
      .memory_limit = memory_limit,
      .trial_parameters = trial_parameters};
  for (const SwapPlacement& placement : placements) space.placement_paths.push_back(placement.paths.size());
  if (has_io_uring) space.engines.push_back(IoKind::io_uring);
  space.engines.push_back(IoKind::threads);
  return space;
}

std::vector<SwapPlacement> make_placements(const std::vector<std::string>& paths,
                                           const std::vector<double>& rates, std::uint32_t parity) {
  constexpr double alike_within = 1.1;
  SwapPlacement all{
      .name = parity > 0 ? "parity " + std::to_string(parity) : "all by rate", .paths = {}, .rates = {}};
  std::vector<SwapPlacement> alone;
  for (std::uint32_t path = 0; path < paths.size(); ++path) {
    all.paths.push_back(path);
    alone.push_back({.name = paths[path], .paths = {path}, .rates = {}});
  }
  if (paths.size() == 1) return alone;
  if (parity > 0) return {all};
  all.rates = rates;
  std::vector<SwapPlacement> placements = {all};
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  if (*most > *least * alike_within) {
    all.name = "all alike";
    all.rates.assign(paths.size(), 1e9);
    placements.push_back(all);
  }
  placements.insert(placements.end(), alone.begin(), alone.end());
  return placements;
}

Bytes TuneSpace::memory_of(const SwapPoint& point) const {
  return planned_host_bytes({.point = point,
                             .parameters = trial_parameters,
                             .states = states,
                             .folders = std::vector<std::string>(placement_paths[point.placement]),
                             .parity = parity});
}

SwapPoint TuneSpace::point(const GridPoint& at) const {
  return {.block_bytes = blocks[at[0]],
          .buffers = buffers[at[1]],
          .queue_depth = depths[at[2]],
          .request_bytes = requests[at[3]],
          .io = engines[at[4]],
          .placement = at[5]};
}

SwapPoint TuneSpace::usual() const {
  SwapPoint point;
  point.io = engines.front();
  return point;
}

bool TuneSpace::allowed(const SwapPoint& point) const {
  const Bytes all = state_bytes(states, trial_parameters);
  const bool smallest = point.block_bytes == blocks.front() && point.buffers == buffers.front();
  return (smallest || point == usual() || buffer_bytes(point) * times_the_buffers <= all) &&
         memory_of(point) <= memory_limit;
}

Grid TuneSpace::grid() const {
  const auto size = [](const auto& values) { return static_cast<std::uint32_t>(values.size()); };
  return {.sizes = {size(blocks), size(buffers), size(depths), size(requests), size(engines),
                    size(placement_paths)},
          .allowed = [this](const GridPoint& at) { return allowed(point(at)); },
          .memory = [this](const GridPoint& at) { return static_cast<double>(memory_of(point(at))); }};
}

std::vector<GridPoint> TuneSpace::start() const {
  const SwapPoint usual = this->usual();
  const std::uint32_t depth = index_of(depths, usual.queue_depth),
                      request = index_of(requests, usual.request_bytes);
  const auto at = [&](Bytes block, std::uint32_t count, std::uint32_t engine) {
    return GridPoint{index_of(blocks, block), index_of(buffers, count), depth, request, engine, 0};
  };
  std::vector<GridPoint> points = {at(usual.block_bytes, usual.buffers, 0)};
  if (engines.size() > 1) points.push_back(at(usual.block_bytes, usual.buffers, 1));
  for (std::uint32_t placement = 1; placement < placement_paths.size(); ++placement) {
    points.push_back(points.front());
    points.back().back() = placement;
  }
  for (const std::uint32_t count : {usual.buffers, 2 * usual.buffers, usual.buffers / 2})
    for (const Bytes block :
         {usual.block_bytes, 6 * mib, 12 * mib, 24 * mib, 1536 * kib, 48 * mib, 768 * kib, 384 * kib})
      if (points.front() != at(block, count, 0)) points.push_back(at(block, count, 0));
  return points;
}

Bytes written_bytes_a_step(std::uint64_t parameters, std::size_t paths, std::uint32_t parity,
                           const StateFormat& states) {
  const Bytes data_paths = paths - parity;
  return divide_up(state_bytes(states, parameters), data_paths) * paths;
}

std::uint64_t trial_parameters(const DriveRates& rates, double seconds, Bytes free_bytes, std::uint64_t most,
                               const StateFormat& states) {
  // A trial is a few steps, and the making of its store as long as one or two.
  constexpr double usual_share = 1.0 / 300, largest_share = 1.0 / 60, shortest = 0.01, longest = 2;
  const double bytes = static_cast<double>(state_bytes(states, norm_chunk_numel)) / norm_chunk_numel;
  const double a_parameter = bytes * (1 / std::max(rates.read_bytes_per_second, 1.0) +
                                      1 / std::max(rates.write_bytes_per_second, 1.0));
  const double wanted = static_cast<double>(times_the_buffers * buffer_bytes({})) / bytes;
  const double affordable = std::max(std::clamp(seconds * usual_share, shortest, longest) / a_parameter,
                                     std::min(wanted, seconds * largest_share / a_parameter));
  constexpr Bytes generations = 2;
  const auto fitting =
      static_cast<std::uint64_t>(static_cast<double>(free_bytes / (2 * stores_kept * generations)) / bytes);
  const auto rounded = [](std::uint64_t parameters) { return parameters / smallest_trial * smallest_trial; };
  const std::uint64_t parameters =
      std::min(rounded(static_cast<std::uint64_t>(std::clamp(affordable, static_cast<double>(smallest_trial),
                                                             static_cast<double>(largest_trial)))),
               rounded(fitting));
  return most > 0 ? std::min(parameters, most) : parameters;
}

}  // namespace headrace::tune
