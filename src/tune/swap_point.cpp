#include <fmt/format.h>

#include "headrace/bench.h"
#include "headrace/tune.h"

namespace headrace {

std::string text_of(const SwapPoint& point) {
  constexpr const char* engines[] = {"auto", "io_uring", "threads"};
  return fmt::format("block {}, {} buffers, depth {}, requests {}, {}", size_text(point.block_bytes),
                     point.buffers, point.queue_depth, size_text(point.request_bytes),
                     engines[static_cast<std::size_t>(point.io)]);
}

}  // namespace headrace
