// What the drive does with plain reads and plain writes, through the engine's I/O at a point's block size,
// queue depth and request size. No checksums, no order, one direction at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/tune.h"

namespace headrace::tune {

struct RawRate {
  double seconds = 0;
  Bytes bytes = 0;
  double bytes_per_second() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

// The memory that plain transfers pass through.
struct RawBuffers {
  Bytes block_bytes = 0;
  std::uint32_t count = 0;  // transfers in flight
  Bytes bytes() const { return block_bytes * count; }
};
// The blocks of a point, half as many as it has; within `available` fewer, then smaller ones. None where not
// even two requests fit.
std::optional<RawBuffers> raw_buffers(const SwapPoint& point, Bytes available);

class RawFile {
 public:
  // Makes a file at each path, and writes them once, block by block in proportion to `weights` (none: alike),
  // until there are `bytes` or `most_seconds` are over; no extent of them is new afterwards. Throws IoError.
  RawFile(const std::vector<std::string>& paths, const std::vector<double>& weights, const SwapPoint& point,
          const RawBuffers& buffers, Bytes bytes, double most_seconds);
  ~RawFile();
  Bytes bytes() const { return bytes_; }
  RawRate first_write() const { return first_write_; }

  // From the start, at least one block, until the end or until `most_seconds` are over.
  RawRate read(double most_seconds) { return transfer(IoDirection::read, most_seconds); }
  RawRate write(double most_seconds) { return transfer(IoDirection::write, most_seconds); }

 private:
  RawRate transfer(IoDirection direction, double most_seconds);

  RawBuffers buffers_;
  std::unique_ptr<IoEngine> io_;
  MemoryBudget budget_;
  StagingPool pool_;
  std::vector<IoFile> files_;
  std::vector<double> weights_;
  Bytes bytes_ = 0;
  RawRate first_write_;
};

}  // namespace headrace::tune
