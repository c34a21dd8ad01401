// CRC32C of the parts of a file, end to end, while its bytes come in pieces of any length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "headrace/bytes.h"

namespace headrace {

class PartSums {
 public:
  using Length = std::function<Bytes(std::uint64_t part)>;  // above 0
  using Ended = std::function<void(std::uint64_t part, std::uint32_t crc32c)>;
  PartSums(Length length, Ended ended) : length_(std::move(length)), ended_(std::move(ended)) {}
  void add(std::span<const std::byte> data);

 private:
  Length length_;
  Ended ended_;
  std::uint64_t part_ = 0;
  Bytes done_ = 0;  // of it
  std::uint32_t sum_ = 0;
};

}  // namespace headrace
