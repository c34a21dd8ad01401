#include "src/bench/latency_histogram.h"

#include <bit>
#include <cmath>

namespace headrace {

// Below `parts` each nanosecond has a bucket; above, the leading bit and the parts_log2 bits behind it
// choose.
std::uint32_t LatencyHistogram::bucket_of(std::uint64_t nanoseconds) {
  if (nanoseconds < parts) return static_cast<std::uint32_t>(nanoseconds);
  const auto shift = static_cast<std::uint32_t>(std::bit_width(nanoseconds)) - parts_log2 - 1;
  return shift * parts + static_cast<std::uint32_t>(nanoseconds >> shift);
}

double LatencyHistogram::middle_of(std::uint32_t bucket) {
  if (bucket < 2 * parts) return bucket;
  const std::uint32_t shift = bucket / parts - 1;
  return std::ldexp(bucket - shift * parts + 0.5, static_cast<int>(shift));
}

void LatencyHistogram::add(std::uint64_t nanoseconds) {
  ++counts_[bucket_of(nanoseconds)];
  ++count_;
}

void LatencyHistogram::add(const LatencyHistogram& other) {
  for (std::size_t b = 0; b < counts_.size(); ++b) counts_[b] += other.counts_[b];
  count_ += other.count_;
}

double LatencyHistogram::quantile(double quantile) const {
  const double wanted = std::max(quantile * static_cast<double>(count_), 1.0);
  std::uint64_t seen = 0;
  for (std::uint32_t b = 0; b < counts_.size(); ++b) {
    seen += counts_[b];
    if (static_cast<double>(seen) >= wanted) return middle_of(b) * 1e-9;
  }
  return 0;
}

}  // namespace headrace
