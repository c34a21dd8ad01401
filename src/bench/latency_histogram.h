// Times by their logarithm: any number of them in constant memory, quantiles to within 3%.
#pragma once

#include <array>
#include <cstdint>

namespace headrace {

class LatencyHistogram {
 public:
  void add(std::uint64_t nanoseconds);
  void add(const LatencyHistogram& other);
  std::uint64_t count() const { return count_; }
  // Seconds that the share `quantile` (0 to 1) of the times do not exceed; 0 where there are none.
  double quantile(double quantile) const;

 private:
  static constexpr std::uint32_t parts_log2 = 5, parts = 1u << parts_log2;  // of each power of two
  static std::uint32_t bucket_of(std::uint64_t nanoseconds);
  static double middle_of(std::uint32_t bucket);

  std::array<std::uint64_t, (64 - parts_log2 + 1) * parts> counts_{};
  std::uint64_t count_ = 0;
};

}  // namespace headrace
