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

// Words that no drive compresses away.
void fill(std::span<std::byte> memory) {
  std::uint64_t word = 0x9e3779b97f4a7c15;
  for (std::size_t at = 0; at + sizeof(word) <= memory.size(); at += sizeof(word)) {
    word ^= word << 13, word ^= word >> 7, word ^= word << 17;
    std::memcpy(memory.data() + at, &word, sizeof(word));
  }
}

}  // namespace

RawFile::RawFile(const std::vector<std::string>& paths, const std::vector<double>& weights,
                 const SwapPoint& point, Bytes bytes, double most_seconds)
    : block_bytes_(round_up(point.block_bytes, 4096)),
      in_flight_(std::max<std::uint32_t>(2, point.buffers / 2)),
      io_(open_io(point)),
      budget_("host", ~Bytes{0}),
      pool_(budget_, MemoryTag::staging, block_bytes_, in_flight_),
      weights_(weights) {
  if (weights_.empty()) weights_.assign(paths.size(), 1.0);
  bytes_ = std::max<Bytes>(1, bytes / block_bytes_) * block_bytes_;
  const double all = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  for (std::size_t p = 0; p < paths.size(); ++p) {
    files_.push_back(IoFile::open(paths[p], IoFile::Mode::create));
    const double blocks = static_cast<double>(bytes_ / block_bytes_) * weights_[p] / all;
    files_.back().preallocate((static_cast<Bytes>(blocks) + paths.size()) * block_bytes_);
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
                    block_bytes_, result.code);
    done += block_bytes_;
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
       sent += block_bytes_) {
    if (transfers.size() == in_flight_) finish_one();
    const std::size_t f = turn();
    const Bytes at = std::exchange(next[f], next[f] + block_bytes_);
    transfers.push_back({f, at, io_->submit(direction, files_[f], at, pool_.acquire(), block_bytes_)});
  }
  while (!transfers.empty()) finish_one();
  return {.seconds = seconds_since(start), .bytes = done};
}

}  // namespace headrace::tune
