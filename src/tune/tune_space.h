// The points that a search may choose from, as a grid, within a memory limit and for a trial of a given size.
// Pure values.
#pragma once

#include <vector>

#include "headrace/tune.h"
#include "src/tune/tune_search.h"

namespace headrace::tune {

struct TuneSpace {
  std::vector<Bytes> blocks;
  std::vector<std::uint32_t> buffers, depths;
  std::vector<Bytes> requests;
  std::vector<IoKind> engines;
  std::vector<std::size_t> placement_paths = {1};  // how many paths each placement uses
  std::uint32_t parity = 0;
  StateFormat states;
  Bytes memory_limit = 0;
  std::uint64_t trial_parameters = 0;

  SwapPoint point(const GridPoint& at) const;
  // Host memory of the pipeline at a point, by the engine's own plan.
  Bytes memory_of(const SwapPoint& point) const;
  // The defaults of a run, by the first of `engines`.
  SwapPoint usual() const;
  // Within the memory limit, and small beside the trial: a point whose buffers hold a large part of all
  // blocks shows how a step starts and ends, not how it runs. The usual point may: the others are compared
  // with it.
  bool allowed(const SwapPoint& point) const;
  Grid grid() const;
  // The defaults, the other engine and the other placements, then block sizes with few and many buffers.
  std::vector<GridPoint> start() const;
};
TuneSpace make_tune_space(Bytes memory_limit, std::uint64_t trial_parameters, bool has_io_uring,
                          const std::vector<SwapPlacement>& placements, std::uint32_t parity,
                          const StateFormat& states = {});

// Of swap paths with these rates, the usual one first: without parity all in proportion to the rates, all
// alike where that is another thing, and each alone; with parity all.
std::vector<SwapPlacement> make_placements(const std::vector<std::string>& paths,
                                           const std::vector<double>& rates, std::uint32_t parity);

// What a step of `parameters` writes to all paths together: states, and parity.
Bytes written_bytes_a_step(std::uint64_t parameters, std::size_t paths, std::uint32_t parity,
                           const StateFormat& states = {});

// Parameters of a trial, so that a step takes as little of `seconds` as leaves time for many trials on a
// drive of these rates, and the files of the stores that are kept side by side fit into half of `free_bytes`.
// On a slow drive there are fewer trials, so that the buffers of the defaults are small beside each. Never
// more than `most` where that is not 0. 0: not even a small trial fits.
struct DriveRates {
  double read_bytes_per_second = 0, write_bytes_per_second = 0;
};
inline constexpr std::uint32_t stores_kept = 3;
std::uint64_t trial_parameters(const DriveRates& rates, double seconds, Bytes free_bytes, std::uint64_t most,
                               const StateFormat& states = {});

}  // namespace headrace::tune
