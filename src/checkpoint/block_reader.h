// Reads every block of a store in order, a few ahead.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>

#include "headrace/errors.h"
#include "headrace/swap_store.h"

namespace headrace {

class BlockReader {
 public:
  explicit BlockReader(SwapStore& store);
  // `visit` gets the bytes of each good block, `damaged` the error of each other one.
  // Ends before the next block once `go_on` says no.
  void run(const std::function<void(std::uint32_t block, std::span<std::byte> bytes)>& visit,
           const std::function<void(std::uint32_t block, const Error&)>& damaged,
           const std::function<bool()>& go_on);

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  HostLease buffer(std::uint32_t block);

  SwapStore& store_;
  Bytes buffer_bytes_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace headrace
