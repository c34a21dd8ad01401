#include "src/tune/trials.h"

#include <algorithm>

#include "headrace/optimizer_blocks.h"
#include "headrace/statistics.h"
#include "src/tune/failures.h"
#include "src/tune/tune_space.h"

namespace headrace::tune {

namespace {

std::string store_name(const SwapPoint& point) {
  return fmt::format("block-{}-placement-{}", point.block_bytes, point.placement);
}

}  // namespace

void Trials::drop(const std::string& store) {
  files_.remove(store);
  std::erase(kept_, store);
}

std::vector<std::string> Trials::paths_of(const SwapPoint& point, const std::string& name) const {
  const std::vector<std::string> all = files_.paths_of(name);
  std::vector<std::string> chosen;
  for (const std::uint32_t path : placements_[point.placement].paths) chosen.push_back(all[path]);
  return chosen;
}

SwapPipelineOptions Trials::pipeline_options(const SwapPoint& point, const std::string& store) const {
  return {.point = point,
          .parameters = parameters_,
          .states = options_.states,
          .folders = paths_of(point, store),
          .path_rates = placements_[point.placement].rates,
          .parity = options_.parity,
          .durability = options_.durability,
          .host_memory_bytes = options_.host_memory_bytes};
}

std::unique_ptr<SwapPipeline> Trials::open(const SwapPoint& point) {
  const std::string store = store_name(point);
  const bool known = std::find(kept_.begin(), kept_.end(), store) != kept_.end();
  const bool reuse = known && options_.durability == Durability::step;
  if (known && !reuse) drop(store);
  while (!reuse && kept_.size() >= stores_kept) drop(std::string(kept_.back()));
  try {
    SwapPipelineOptions pipeline_options = this->pipeline_options(point, store);
    pipeline_options.reuse = reuse;
    auto pipeline = std::make_unique<SwapPipeline>(pipeline_options);
    if (!reuse) (void)pipeline->step(UpdateKind::real);  // a first write of an extent is slower than the next
    std::erase(kept_, store);
    kept_.push_front(store);
    return pipeline;
  } catch (...) {
    if (!reuse) drop(store);  // half made
    throw;
  }
}

TuneTrial Trials::measure(const SwapPoint& point, const std::function<bool()>& over) {
  constexpr std::size_t fewest = 2, most = 5;
  const std::unique_ptr<SwapPipeline> pipeline = open(point);
  std::vector<double> seconds;
  double spent = 0;
  Bytes moved = 0;
  while (seconds.empty() ||
         (!over() && seconds.size() < most && (seconds.size() < fewest || spent < sample_seconds_))) {
    const SwapStep step = pipeline->step(UpdateKind::real);
    seconds.push_back(step.seconds);
    spent += step.seconds;
    moved = step.read_bytes + step.written_bytes;
  }
  TuneTrial trial{.point = point, .parameters = parameters_};
  trial.step_seconds = median(std::move(seconds));
  trial.bytes_per_second = static_cast<double>(moved) / trial.step_seconds;
  trial.parameters_per_second = static_cast<double>(parameters_) / trial.step_seconds;
  return trial;
}

TuneTrial Trials::run(const SwapPoint& point, const std::function<bool()>& over) {
  TuneTrial trial{.point = point, .parameters = parameters_};
  if (const auto failure = failure_of([&] { trial = measure(point, over); })) {
    trial.failure = failure->text;
    if (!failure->of_limit) drop(store_name(point));
  }
  return trial;
}

TimedStep Trials::time_small_step(const SwapPoint& point) {
  constexpr std::size_t steps = 5;
  const std::string store = "small";
  SwapPipelineOptions options = pipeline_options(point, store);
  options.parameters = block_numel(point.block_bytes, options_.states) * options.folders.size();
  std::vector<double> seconds;
  {
    SwapPipeline pipeline(options);
    (void)pipeline.step(UpdateKind::real);  // the second generation's first write
    while (seconds.size() < steps) seconds.push_back(pipeline.step(UpdateKind::real).seconds);
  }
  files_.remove(store);
  return {.parameters = options.parameters, .seconds = median(std::move(seconds))};
}

}  // namespace headrace::tune
