#include "src/tune/ceiling.h"

#include <algorithm>

#include "headrace/statistics.h"
#include "src/tune/closed_form.h"

namespace headrace::tune {
namespace {

void add_plain_rates(TuneCeiling& ceiling, std::vector<double> reads, std::vector<double> writes,
                     const SwapPipeline& pipeline, std::uint32_t buffers, double written_a_byte) {
  ceiling.read_bytes_per_second = median(std::move(reads));
  ceiling.write_bytes_per_second = median(std::move(writes));
  const auto bytes = static_cast<double>(pipeline.block_bytes());
  ceiling.alone_seconds = shared_path_step({.read = bytes / ceiling.read_bytes_per_second,
                                            .compute = ceiling.compute_seconds,
                                            .write = written_a_byte * bytes / ceiling.write_bytes_per_second},
                                           ceiling.blocks, buffers);
}

}  // namespace

double plain_seconds(double left, double step_seconds) {
  constexpr double wanted_rounds = 3, least = 0.02, most = 0.25;
  return std::clamp(left / wanted_rounds / 2 - step_seconds, least, most);
}

TuneCeiling measure_ceiling(SwapPipeline& pipeline, RawFile* file, const SwapPoint& point,
                            const CeilingRounds& rounds) {
  std::vector<double> steps, nulls, forms, shares, reads, writes;
  for (int round = 0; !rounds.stop() && (round == 0 || !rounds.over()); ++round) {
    const auto real = [&] { steps.push_back(pipeline.step(UpdateKind::real).seconds); };
    if (round % 2 == 0) real();
    nulls.push_back(pipeline.step(UpdateKind::null).seconds);
    if (round % 2 == 1) real();
    forms.push_back(step_over_null(nulls.back(), rounds.compute_seconds, pipeline.blocks(), point.buffers));
    shares.push_back(forms.back() / steps.back());
    if (file == nullptr) continue;
    reads.push_back(file->read(rounds.plain_seconds).bytes_per_second());
    writes.push_back(file->write(rounds.plain_seconds).bytes_per_second());
  }
  TuneCeiling ceiling{.rounds = static_cast<int>(steps.size()), .blocks = pipeline.blocks()};
  if (steps.empty()) return ceiling;
  ceiling.step_seconds = median(steps);
  ceiling.null_step_seconds = median(nulls);
  ceiling.compute_seconds = rounds.compute_seconds;
  ceiling.closed_form_seconds = median(forms);
  ceiling.share = median(shares);
  ceiling.deviation = median_deviation(shares);
  if (file != nullptr)
    add_plain_rates(ceiling, std::move(reads), std::move(writes), pipeline, point.buffers,
                    rounds.written_a_byte);
  return ceiling;
}

}  // namespace headrace::tune
