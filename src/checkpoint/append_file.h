// A file of known size that is written from its start to its end, in whole buffers, while the caller goes on.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "headrace/io_engine.h"
#include "headrace/io_file.h"

namespace headrace {

// One thread. append() blocks while all buffers but one are on their way. Throws IoError; after one, nothing
// but the destructor may be called, which waits for what is in flight.
class AppendFile {
 public:
  static constexpr Bytes buffer_bytes = Bytes{2} << 20;
  static constexpr std::uint32_t buffers = 8;
  static constexpr Bytes memory_bytes = buffer_bytes * buffers;

  // Creates the file with all of its space, so that a full disk is found first. `memory` is memory_bytes of
  // page-aligned memory that outlives this object.
  AppendFile(IoEngine& engine, const std::string& path, Bytes bytes, std::span<std::byte> memory);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Returns the CRC32C of the data.
  std::uint32_t append(std::span<const std::byte> data);
  // Waits for all of it and flushes it to the disk. All bytes have been appended.
  void finish();

 private:
  struct Write {
    IoTicket ticket;
    std::uint64_t offset;
    Bytes bytes;
  };
  void submit();
  void wait_for_oldest();

  IoEngine& engine_;
  IoFile file_;
  Bytes bytes_, submitted_ = 0, filled_ = 0;
  std::span<std::byte> memory_;
  std::uint32_t next_ = 0;  // the buffer that is being filled
  std::deque<Write> in_flight_;
};

}  // namespace headrace
