#include "src/tune/trials.h"

#include <algorithm>
#include <new>

#include "headrace/errors.h"
#include "src/tune/statistics.h"
#include "src/tune/tune_space.h"

namespace headrace::tune {

std::string Trials::store_name(Bytes block_bytes) {
  return fmt::format("block-{}", block_bytes);
}

void Trials::drop(Bytes block_bytes) {
  std::erase(kept_, block_bytes);
  files_.remove(store_name(block_bytes));
}

std::unique_ptr<SwapPipeline> Trials::open(const SwapPoint& point) {
  const Bytes block = point.block_bytes;
  const bool known = std::find(kept_.begin(), kept_.end(), block) != kept_.end();
  const bool reuse = known && options_.durability == Durability::step;
  if (known && !reuse) drop(block);
  while (!reuse && kept_.size() >= stores_kept) drop(kept_.back());
  try {
    auto pipeline =
        std::make_unique<SwapPipeline>(SwapPipelineOptions{.point = point,
                                                           .parameters = parameters_,
                                                           .folders = files_.paths_of(store_name(block)),
                                                           .durability = options_.durability,
                                                           .host_memory_bytes = options_.host_memory_bytes,
                                                           .reuse = reuse});
    if (!reuse) (void)pipeline->step(UpdateKind::adam);  // a first write of an extent is slower than the next
    std::erase(kept_, block);
    kept_.push_front(block);
    return pipeline;
  } catch (...) {
    drop(block);
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
    const SwapStep step = pipeline->step(UpdateKind::adam);
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
  TuneTrial failed{.point = point, .parameters = parameters_};
  try {
    return measure(point, over);
  } catch (const Error& error) {
    failed.failure = error.what();
  } catch (const std::bad_alloc&) {
    failed.failure = "the machine has too little memory for it";
  }
  drop(point.block_bytes);
  failed.failure = failed.failure.substr(0, failed.failure.find('\n'));
  return failed;
}

}  // namespace headrace::tune
