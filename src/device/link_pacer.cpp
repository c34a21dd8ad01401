#include "src/device/link_pacer.h"

#include <algorithm>
#include <thread>

namespace headrace {

void LinkPacer::occupy(Clock::time_point start, Bytes bytes) {
  constexpr auto longest_gap = std::chrono::milliseconds(1);  // between copies of a busy link
  if (start - last_end_ > longest_gap) overslept_ = {};
  const auto cost = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_second_));
  // When an exact link, begun `overslept_` earlier, would be done.
  const auto ideal_end = start - overslept_ + std::max(cost, Clock::now() - start);
  std::this_thread::sleep_until(ideal_end);
  last_end_ = Clock::now();
  overslept_ = last_end_ - ideal_end;
}

}  // namespace headrace
