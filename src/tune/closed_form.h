// The closed form of a swapped optimizer step: K blocks pass through B buffers, each read, computed and
// written. It is the ceiling of the real pipeline. Pure arithmetic; seconds.
#pragma once

#include <cstdint>

namespace headrace::tune {

struct BlockSeconds {
  double read = 0, compute = 0, write = 0;  // of one block
  double total() const { return read + compute + write; }
};

// T = (r + c + w) + (K - 1) lambda. Reads and writes share one path: lambda = max(r + w, c, (r + c + w) / B).
double shared_path_step(const BlockSeconds& block, std::uint64_t blocks, std::uint32_t buffers);

// The step whose null twin (everything but the compute) takes `null_seconds`: what it takes for a block is
// r + w as the pipeline itself sees it, however reads and writes share the path.
double step_over_null(double null_seconds, double compute, std::uint64_t blocks, std::uint32_t buffers);

struct TimedStep {
  std::uint64_t parameters = 0;
  double seconds = 0;
};
// A step of `parameters`, from a large and a small one: what a step costs however small it is (the first
// read, the last write, the flush) is paid once, the rest is in proportion. Without a small one, all of it
// is.
double step_of(std::uint64_t parameters, const TimedStep& large, const TimedStep& small);

}  // namespace headrace::tune
