#include "src/tune/raw_rates.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <numeric>
#include <utility>

#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "src/tune/swap_pipeline.h"

namespace headrace::tune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Bytes page_bytes = 4096;

// Words that no drive compresses away.
void fill(std::span<std::byte> memory) {
  std::uint64_t word = 0x9e3779b97f4a7c15;
  for (std::size_t at = 0; at + sizeof(word) <= memory.size(); at += sizeof(word)) {
    word ^= word << 13, word ^= word >> 7, word ^= word << 17;
    std::memcpy(memory.data() + at, &word, sizeof(word));
  }
}

}  // namespace

std::optional<RawBuffers> raw_buffers(const SwapPoint& point, Bytes available) {
  constexpr std::uint32_t fewest = 2;
  constexpr Bytes usual_request = Bytes{1} << 20;
  const Bytes request = point.request_bytes > 0 ? point.request_bytes : usual_request;
  const Bytes least = round_up(std::min(request, point.block_bytes), page_bytes);
  const Bytes block =
      std::min(round_up(point.block_bytes, page_bytes), available / fewest / page_bytes * page_bytes);
  if (block < least) return std::nullopt;
  const auto fitting = std::min<Bytes>(std::max(fewest, point.buffers / 2), available / block);
  return RawBuffers{.block_bytes = block, .count = static_cast<std::uint32_t>(fitting)};
}

RawFile::RawFile(const std::vector<std::string>& paths, const std::vector<double>& weights,
                 const SwapPoint& point, const RawBuffers& buffers, Bytes bytes, double most_seconds)
    : buffers_(buffers),
      io_(open_io(point)),
      budget_("host", buffers.bytes()),
      pool_(budget_, MemoryTag::staging, buffers.block_bytes, buffers.count),
      weights_(weights) {
  if (weights_.empty()) weights_.assign(paths.size(), 1.0);
  bytes_ = std::max<Bytes>(1, bytes / buffers_.block_bytes) * buffers_.block_bytes;
  const double all = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  for (std::size_t p = 0; p < paths.size(); ++p) {
    files_.push_back(IoFile::open(paths[p], IoFile::Mode::create));
    const double blocks = static_cast<double>(bytes_ / buffers_.block_bytes) * weights_[p] / all;
    files_.back().preallocate((static_cast<Bytes>(blocks) + paths.size()) * buffers_.block_bytes);
  }
  fill(pool_.memory());
  first_write_ = transfer(IoDirection::write, most_seconds);
  bytes_ = first_write_.bytes;  // what follows is never written
}

RawFile::~RawFile() = default;

RawRate RawFile::transfer(IoDirection direction, double most_seconds) {
  struct InFlight {
    std::size_t file;
    Bytes at;
    IoTicket ticket;
  };
  const auto start = Clock::now();
  std::vector<Bytes> next(files_.size(), 0);  // offset in each file
  std::deque<InFlight> transfers;
  Bytes done = 0;
  const auto finish_one = [&] {
    InFlight& oldest = transfers.front();
    const IoResult result = oldest.ticket.wait();
    if (!result.ok())
      throw IoError(direction == IoDirection::read ? "read" : "write", files_[oldest.file].path(), oldest.at,
                    buffers_.block_bytes, result.code);
    done += buffers_.block_bytes;
    transfers.pop_front();
  };
  // The file that is furthest behind its share.
  const auto turn = [&] {
    std::size_t behind = 0;
    for (std::size_t f = 1; f < files_.size(); ++f)
      if (static_cast<double>(next[f]) / weights_[f] < static_cast<double>(next[behind]) / weights_[behind])
        behind = f;
    return behind;
  };
  for (Bytes sent = 0; sent < bytes_ && (sent == 0 || seconds_since(start) < most_seconds);
       sent += buffers_.block_bytes) {
    if (transfers.size() == buffers_.count) finish_one();
    const std::size_t f = turn();
    const Bytes at = std::exchange(next[f], next[f] + buffers_.block_bytes);
    transfers.push_back(
        {f, at, io_->submit(direction, files_[f], at, pool_.acquire(), buffers_.block_bytes)});
  }
  while (!transfers.empty()) finish_one();
  return {.seconds = seconds_since(start), .bytes = done};
}

}  // namespace headrace::tune
