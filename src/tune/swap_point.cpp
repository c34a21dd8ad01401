#include <fmt/format.h>

#include "headrace/bench.h"
#include "headrace/tune.h"

namespace headrace {

std::string depth_text(const SwapPoint& point) {
  return point.queue_depth == 0 ? "auto" : std::to_string(point.queue_depth);
}

std::string request_text(const SwapPoint& point) {
  return point.request_bytes == 0 ? "auto" : size_text(point.request_bytes);
}

std::string text_of(const SwapPoint& point) {
  return fmt::format("block {}, {} buffers, depth {}, requests {}, {}", size_text(point.block_bytes),
                     point.buffers, depth_text(point), request_text(point), name_of(point.io));
}

}  // namespace headrace
