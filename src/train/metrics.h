// What a run measures: one record a step and one at the end, written as JSON lines (DESIGN section 10) by
// rank 0.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "headrace/communicator.h"
#include "headrace/engine.h"
#include "headrace/memory.h"
#include "headrace/planner.h"

namespace headrace {

// What one rank says of a step; every member is 8 bytes, so that it travels as is.
struct RankSample {
  double loss = 0;
  double upload_stall_seconds = 0, download_stall_seconds = 0, nvme_stall_seconds = 0,
         communicate_stall_seconds = 0, optimizer_seconds = 0;
  Bytes nvme_read_bytes = 0, nvme_written_bytes = 0;
  Bytes all_gather_bytes = 0, reduce_scatter_bytes = 0, all_reduce_bytes = 0;
  Bytes device_peak_bytes = 0, host_peak_bytes = 0;
  std::uint64_t stop_requested = 0, terminated = 0;  // ranks that were asked to stop; those by SIGTERM
};
struct StepMetrics {
  std::uint64_t step = 0;
  double gradient_norm = 0, learning_rate = 0;
  double step_seconds = 0, tokens_per_second = 0;
  bool skipped = false;
  double loss_scale = 1;
  RankSample ranks;  // of all ranks together
  std::optional<double> eval_loss;
};

struct RunSummary {
  std::uint64_t steps = 0, state_hash = 0, parameters = 0;
  Bytes peak_rss_bytes = 0;
  MemoryPlan planned;
  TagBytes device_peak, host_peak;
};

RankSample difference(const EngineCounters& now, const EngineCounters& before);
// Bytes summed, peaks and stalls the largest, the loss averaged in rank order: the same result on every rank
// (a collective).
RankSample combine_ranks(const RankSample& own, Communicator& communicator, Device& device);
// The largest value of each element over the ranks (a collective).
void largest_of_ranks(std::span<Bytes> values, Communicator& communicator, Device& device);

class MetricsFile {
 public:
  // Nothing is written without a path. Continues the file if there is one.
  explicit MetricsFile(const std::string& path);
  void start_over();  // empties it
  void write(const StepMetrics& metrics);
  void write(const RunSummary& summary);

 private:
  void line(const std::string& text);
  std::string path_;
  std::ofstream file_;
};

std::string format_loss(double loss);         // "not finite" where it is not
std::string format_hash(std::uint64_t hash);  // 16 hexadecimal digits

}  // namespace headrace
