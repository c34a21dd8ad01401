#include "src/checkpoint/part_sums.h"

#include <algorithm>

#include "headrace/io_engine.h"

namespace headrace {

void PartSums::add(std::span<const std::byte> data) {
  while (!data.empty()) {
    const Bytes length = length_(part_), count = std::min<Bytes>(data.size(), length - done_);
    sum_ = crc32c(data.first(count), sum_);
    done_ += count;
    data = data.subspan(count);
    if (done_ < length) return;
    done_ = 0;
    ended_(part_++, std::exchange(sum_, 0));
  }
}

}  // namespace headrace
