// What the aio tests share: a folder that goes away, aligned memory with a recognisable pattern, a lease
// owner that counts.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "headrace/errors.h"
#include "headrace/io_engine.h"
#include "tests/support/temporary_folder.h"

namespace headrace::testing {

class IoFolder {
 public:
  std::string file(const std::string& name) const { return folder_.path(name); }

 private:
  const TemporaryFolder folder_;
};

// 4 KiB-aligned memory.
class AlignedMemory {
 public:
  explicit AlignedMemory(Bytes bytes)
      : bytes_(bytes), memory_(static_cast<std::byte*>(std::aligned_alloc(4096, round_up(bytes + 1, 4096)))) {
    std::memset(memory_.get(), 0, bytes);
  }
  std::span<std::byte> span() const { return {memory_.get(), bytes_}; }
  HostLease lease() const { return HostLease::borrowed(span()); }

  // Every 8-byte word differs from every other of the same seed and from the same word of other seeds.
  AlignedMemory& fill(std::uint64_t seed) {
    for (Bytes at = 0; at < bytes_; at += 8) {
      const std::uint64_t word = (at + 1) * 0x9e3779b97f4a7c15u ^ seed << 32;
      std::memcpy(memory_.get() + at, &word, std::min<Bytes>(8, bytes_ - at));
    }
    return *this;
  }
  bool operator==(const AlignedMemory& other) const {
    return bytes_ == other.bytes_ && std::memcmp(memory_.get(), other.memory_.get(), bytes_) == 0;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  Bytes bytes_;
  std::unique_ptr<std::byte, Free> memory_;
};

class CountingOwner final : public LeaseOwner {
 public:
  void give_back(std::span<std::byte>) noexcept override { ++returned; }
  std::atomic<int> returned{0};
};

inline IoResult transfer(IoEngine& engine, IoDirection direction, const IoFile& file, std::uint64_t offset,
                         const AlignedMemory& memory) {
  return engine.submit(direction, file, offset, memory.lease(), memory.span().size()).wait();
}

inline void expect_whole(IoResult result, Bytes bytes) {
  EXPECT_EQ(result.code, 0) << std::strerror(result.code);
  EXPECT_EQ(result.bytes, bytes);
}

inline std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

}  // namespace headrace::testing
