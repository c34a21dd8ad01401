// The engine's optimizer step with its states on NVMe and nothing else: units of synthetic parameters, whose
// gradients and low-precision copies are on a device that keeps nothing (pattern_device.h). So a step moves
// the bytes of the states alone, 12 + 12 a parameter for Adam in fp32, and host memory is that of the swap
// buffers.
//
// Threads: one owner. Everything blocks.
#pragma once

#include <memory>
#include <string>

#include "headrace/tune.h"

namespace headrace::tune {

struct SwapPipelineOptions {
  SwapPoint point{};
  std::uint64_t parameters = 0;
  StateFormat states{};
  std::vector<std::string>
      folders{};  // of the store, one a swap path; created, and left as they are at the end
  std::vector<double> path_rates{};  // as EngineOptions has them
  std::uint32_t parity = 0;
  Durability durability = Durability::step;
  Bytes cache_bytes = 0;        // blocks kept in memory, written but not read
  Bytes host_memory_bytes = 0;  // hard limit; 0: none
  // The folders hold a store that a pipeline of these parameters, block size and paths has left: it goes on
  // with that. Needs Durability::step.
  bool reuse = false;
};

// What the step does with a block: the optimizer's update, or nothing. A null step reads, checks and writes
// every byte too.
enum class UpdateKind : std::uint8_t { real, null };

struct SwapStep {
  double seconds = 0;
  double nvme_stall_seconds = 0;  // the step waited for a read or a write
  double update_seconds = 0;
  Bytes read_bytes = 0, written_bytes = 0;
};

class SwapPipeline {
 public:
  // Makes the store and writes every block once, unless it is reused; the second generation is written by the
  // first step. Throws what the engine throws: DoesNotFit, IoError, UsageError.
  explicit SwapPipeline(const SwapPipelineOptions& options);
  ~SwapPipeline();
  SwapStep step(UpdateKind kind);

  std::uint64_t blocks() const;
  Bytes block_bytes() const;  // states of a whole one
  Bytes host_bytes() const;   // by the engine's budget, at most
  std::string_view io_name() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// An optimizer that keeps such states.
OptimizerArguments optimizer_of(const StateFormat& states);
// Host memory of such a pipeline by the engine's own plan: what its budget will show. Pure.
Bytes planned_host_bytes(const SwapPipelineOptions& options);
std::unique_ptr<IoEngine> open_io(const SwapPoint& point);

}  // namespace headrace::tune
