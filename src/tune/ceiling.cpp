#include "src/tune/ceiling.h"

#include "src/tune/closed_form.h"
#include "src/tune/statistics.h"

namespace headrace::tune {

TuneCeiling measure_ceiling(SwapPipeline& pipeline, RawFile& file, std::uint32_t buffers, Bytes block_bytes,
                            double compute_seconds, const std::function<bool()>& over,
                            const std::function<bool()>& stop) {
  constexpr int fewest = 3;
  constexpr double raw_seconds = 0.25;  // each way in each round
  std::vector<double> steps, nulls, forms, ratios, reads, writes;
  for (int round = 0; !stop() && (round < fewest || !over()); ++round) {
    const auto real = [&] { steps.push_back(pipeline.step(UpdateKind::adam).seconds); };
    if (round % 2 == 0) real();
    nulls.push_back(pipeline.step(UpdateKind::null).seconds);
    if (round % 2 == 1) real();
    forms.push_back(step_over_null(nulls.back(), compute_seconds, pipeline.blocks(), buffers));
    ratios.push_back(steps.back() / forms.back());
    reads.push_back(file.read(raw_seconds).bytes_per_second());
    writes.push_back(file.write(raw_seconds).bytes_per_second());
  }
  TuneCeiling ceiling{.rounds = static_cast<int>(steps.size()), .blocks = pipeline.blocks()};
  if (steps.empty()) return ceiling;
  ceiling.step_seconds = median(steps);
  ceiling.null_step_seconds = median(nulls);
  ceiling.compute_seconds = compute_seconds;
  ceiling.closed_form_seconds = median(forms);
  ceiling.step_over_closed_form = median(ratios);
  ceiling.deviation = median_absolute_deviation(ratios);
  ceiling.read_bytes_per_second = median(reads);
  ceiling.write_bytes_per_second = median(writes);
  const auto bytes = static_cast<double>(block_bytes);
  ceiling.alone_seconds = shared_path_step({.read = bytes / ceiling.read_bytes_per_second,
                                            .compute = compute_seconds,
                                            .write = bytes / ceiling.write_bytes_per_second},
                                           pipeline.blocks(), buffers);
  return ceiling;
}

}  // namespace headrace::tune
