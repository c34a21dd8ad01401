#include "src/tune/closed_form.h"

#include <algorithm>

namespace headrace::tune {

double shared_path_step(const BlockSeconds& block, std::uint64_t blocks, std::uint32_t buffers) {
  if (blocks == 0) return 0;
  const double lambda = std::max({block.read + block.write, block.compute, block.total() / buffers});
  return block.total() + static_cast<double>(blocks - 1) * lambda;
}

double step_over_null(double null_seconds, double compute, std::uint64_t blocks, std::uint32_t buffers) {
  if (blocks == 0) return 0;
  const double read_and_write = null_seconds / static_cast<double>(blocks);
  return shared_path_step({.read = read_and_write, .compute = compute, .write = 0}, blocks, buffers);
}

double step_of(std::uint64_t parameters, const TimedStep& large, const TimedStep& small) {
  const auto ratio = [](std::uint64_t of, std::uint64_t to) {
    return static_cast<double>(of) / static_cast<double>(to);
  };
  const bool usable = small.parameters > 0 && small.parameters < large.parameters &&
                      small.seconds < large.seconds && small.parameters <= parameters;
  if (!usable) return large.seconds * ratio(parameters, large.parameters);
  return small.seconds + (large.seconds - small.seconds) *
                             ratio(parameters - small.parameters, large.parameters - small.parameters);
}

}  // namespace headrace::tune
