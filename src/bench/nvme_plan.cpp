#include "src/bench/nvme_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "headrace/statistics.h"

namespace headrace {
namespace {

std::vector<double> slice(const std::vector<double>& values, std::size_t first, std::size_t last) {
  return {values.begin() + static_cast<std::ptrdiff_t>(first),
          values.begin() + static_cast<std::ptrdiff_t>(last)};
}

}  // namespace

std::string_view name_of(NvmeOperation operation) {
  constexpr std::string_view names[] = {"read", "write", "mixed"};
  return names[static_cast<std::size_t>(operation)];
}
std::string_view name_of(NvmeAccess access) {
  constexpr std::string_view names[] = {"sequential", "random"};
  return names[static_cast<std::size_t>(access)];
}
std::string_view name_of(NvmeSource source) {
  constexpr std::string_view names[] = {"direct", "buffered", "cached"};
  return names[static_cast<std::size_t>(source)];
}

std::vector<Bytes> default_nvme_blocks() {
  using namespace literals;
  return {128_KiB, 1_MiB, 8_MiB};
}
std::vector<std::uint32_t> default_nvme_depths() {
  return {1, 8, 32};
}

std::vector<BlockWork> nvme_works(const NvmeBenchOptions& options) {
  std::vector<BlockWork> works;
  for (const NvmeOperation operation : options.operations)
    for (const NvmeAccess access : options.accesses)
      for (const Bytes block : options.blocks)
        for (const std::uint32_t depth : options.depths)
          works.push_back({.operation = operation,
                           .access = access,
                           .block_bytes = block,
                           .depth = depth,
                           .read_share = options.read_share});
  return works;
}

std::string text_of(const BlockWork& work) {
  return fmt::format("{} {} {} depth {}", name_of(work.access), name_of(work.operation),
                     size_text(work.block_bytes), work.depth);
}

Bytes least_file_bytes(Bytes largest_block, std::uint32_t largest_depth) {
  return largest_block * (Bytes{largest_depth} + 2);
}

double blocks_in_flight(const BlockWork& work, const IoShape& shape, std::size_t sharing) {
  const auto requests = static_cast<double>(divide_up(work.block_bytes, shape.request_bytes));
  const double by_requests = static_cast<double>(shape.queue_depth) / requests;
  const double by_bytes = static_cast<double>(shape.in_flight_bytes) / static_cast<double>(work.block_bytes);
  return std::min(std::min(by_requests, by_bytes) / static_cast<double>(sharing),
                  static_cast<double>(work.depth));
}

// The first blocks to end tell little: what was in flight beside them ends in as long again at most.
double drain_seconds(Bytes in_flight_bytes, Bytes moved_bytes, double spent) {
  const Bytes known = std::max<Bytes>({moved_bytes, in_flight_bytes, 1});
  return spent * static_cast<double>(in_flight_bytes) / static_cast<double>(known);
}

double seconds_to_give(double needed) {
  return std::max(std::ceil(1.2 * needed), 1.0);
}

DoesNotFit too_little_written(std::string_view flag, Bytes written_bytes, double spent, Bytes least_bytes,
                              double share) {
  const double needed = spent * static_cast<double>(least_bytes) / static_cast<double>(written_bytes) / share;
  return DoesNotFit(fmt::format(
      "only {} of a file were written in {:.1f} s, and the blocks in flight need {}. Give {} {:g}, or "
      "smaller "
      "--block or --depth.",
      format_bytes(written_bytes), spent, format_bytes(least_bytes), flag, seconds_to_give(needed)));
}

std::optional<Bytes> choose_file_bytes(Bytes asked, Bytes usual, Bytes least, Bytes block,
                                       const FileSpace& space) {
  // A full disk is trouble for others, and some of what is free becomes the file system's own.
  const Bytes most_free = space.free_bytes - space.free_bytes / 20;
  const Bytes most =
      (space.memory_bytes ? std::min(most_free, *space.memory_bytes / 2) : most_free) / block * block;
  if (asked != 0) {
    const Bytes wanted = round_up(asked, block);
    return wanted >= least && wanted <= most ? std::optional(wanted) : std::nullopt;
  }
  Bytes modest = std::min(usual, space.free_bytes / 10);
  if (space.memory_bytes) modest = std::min(modest, *space.memory_bytes / 4);
  const Bytes chosen = std::max(modest / block * block, round_up(least, block));
  return chosen <= most ? std::optional(chosen) : std::nullopt;
}

SampleSchedule::SampleSchedule(std::vector<double> fixed_seconds)
    : fixed_(std::move(fixed_seconds)),
      left_out_(fixed_.size()),
      seen_(fixed_.size()),
      turn_(fixed_.size()) {}

std::size_t SampleSchedule::cases() const {
  return static_cast<std::size_t>(std::count(left_out_.begin(), left_out_.end(), false));
}

double SampleSchedule::fixed_of_round() const {
  return std::accumulate(fixed_.begin(), fixed_.end(), 0.0);
}

int SampleSchedule::rounds_that_fit(double seconds_left) const {
  const auto fit = [&](double sample) {
    const double round = fixed_of_round() + sample * static_cast<double>(cases());
    return static_cast<int>(std::clamp(seconds_left / round, 0.0, double{most_nvme_rounds}));
  };
  const int for_a_median = std::max(enough_nvme_rounds - rounds_begun_, 0);
  return std::min(std::max(fit(usual_sample_seconds), std::min(fit(least_sample_seconds), for_a_median)),
                  most_nvme_rounds - rounds_begun_);
}

// A round for which the time is short is begun all the same: it takes the samples that fit.
bool SampleSchedule::begin_round(double seconds_left) {
  if (cases() == 0 || rounds_begun_ == most_nvme_rounds || !std::exchange(took_any_, false)) return false;
  const auto rounds = static_cast<std::size_t>(std::max(rounds_that_fit(seconds_left), 1));
  fixed_left_ = fixed_of_round() * static_cast<double>(rounds);
  samples_left_ = cases() * rounds;
  turn_ = 0;
  ++rounds_begun_;
  return true;
}

std::optional<SampleSchedule::Sample> SampleSchedule::next(double seconds_left) {
  constexpr double rounding = 1e-6;
  for (;;) {
    if (turn_ == fixed_.size() && !begin_round(seconds_left)) return std::nullopt;
    for (; turn_ < fixed_.size();) {
      const std::size_t index = turn_++;
      if (left_out_[index]) continue;
      const double share = (seconds_left - fixed_left_) / static_cast<double>(samples_left_);
      const Sample sample{.index = index, .seconds = std::max(share, least_sample_seconds)};
      fixed_left_ -= fixed_[index];
      --samples_left_;
      if (sample.seconds + fixed_[index] > seconds_left + rounding) continue;
      took_any_ = true;
      return sample;
    }
  }
}

void SampleSchedule::took(const Sample& sample, double seconds) {
  std::vector<double>& seen = seen_[sample.index];
  seen.push_back(std::max(seconds - sample.seconds, 0.0));
  fixed_[sample.index] = median(seen);
}

// Its time in this round stays unused: the next one is planned without it.
void SampleSchedule::leave_out(std::size_t index) {
  left_out_[index] = true;
  fixed_[index] = 0;
}

std::string one_round_note(double seconds) {
  const double more = seconds < 60 ? 60 : std::ceil(enough_nvme_rounds * seconds);
  return fmt::format("1 round a case, where MAD is -: give --seconds {:g}, or fewer --block/--depth", more);
}

SustainedSummary sustained_summary(const std::vector<double>& rates) {
  const std::size_t n = rates.size(), third = std::max<std::size_t>(n / 3, 1);
  SustainedSummary summary{.steady = median(slice(rates, n - third, n))};
  for (std::size_t i = 0; i < third; ++i)
    summary.first = std::max(summary.first, median(slice(rates, i, std::min(i + 3, n))));
  if (third < 2) return summary;
  const double before = median(slice(rates, n - third, n - third / 2));
  const double last = median(slice(rates, n - third / 2, n));
  summary.settled = std::abs(last - before) < 0.1 * before;
  return summary;
}

NvmeSource source_of(const SourceEvidence& evidence) {
  constexpr double most_from_cache = 0.1;
  if (evidence.in_memory) return NvmeSource::cached;
  if (evidence.from_storage && *evidence.from_storage < 1 - most_from_cache) return NvmeSource::cached;
  if (evidence.highest_rate && evidence.rate > *evidence.highest_rate) return NvmeSource::cached;
  return evidence.direct ? NvmeSource::direct : NvmeSource::buffered;
}

}  // namespace headrace
