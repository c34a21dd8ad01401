#include "src/tune/raw_rates.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>

#include "headrace/errors.h"
#include "src/tune/swap_pipeline.h"

namespace headrace::tune {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Words that no drive compresses away.
void fill(std::span<std::byte> memory) {
  std::uint64_t word = 0x9e3779b97f4a7c15;
  for (std::size_t at = 0; at + sizeof(word) <= memory.size(); at += sizeof(word)) {
    word ^= word << 13, word ^= word >> 7, word ^= word << 17;
    std::memcpy(memory.data() + at, &word, sizeof(word));
  }
}

}  // namespace

RawFile::RawFile(const std::string& path, const SwapPoint& point, Bytes bytes, double most_seconds)
    : block_bytes_(round_up(point.block_bytes, 4096)),
      in_flight_(std::max<std::uint32_t>(2, point.buffers / 2)),
      io_(open_io(point)),
      budget_("host", ~Bytes{0}),
      pool_(budget_, MemoryTag::staging, block_bytes_, in_flight_),
      file_(IoFile::open(path, IoFile::Mode::create)) {
  bytes_ = std::max<Bytes>(1, bytes / block_bytes_) * block_bytes_;
  file_.preallocate(bytes_);
  fill(pool_.memory());
  first_write_ = transfer(IoDirection::write, most_seconds);
  bytes_ = first_write_.bytes;  // what follows is never written
}

RawFile::~RawFile() = default;

RawRate RawFile::transfer(IoDirection direction, double most_seconds) {
  const auto start = Clock::now();
  std::deque<IoTicket> tickets;
  Bytes done = 0;
  const auto finish_one = [&] {
    const IoResult result = tickets.front().wait();
    if (!result.ok())
      throw IoError(direction == IoDirection::read ? "read" : "write", file_.path(), done, block_bytes_,
                    result.code);
    done += block_bytes_;
    tickets.pop_front();
  };
  for (Bytes at = 0; at < bytes_ && (at == 0 || seconds_since(start) < most_seconds); at += block_bytes_) {
    if (tickets.size() == in_flight_) finish_one();
    tickets.push_back(io_->submit(direction, file_, at, pool_.acquire(), block_bytes_));
  }
  while (!tickets.empty()) finish_one();
  return {.seconds = seconds_since(start), .bytes = done};
}

}  // namespace headrace::tune
