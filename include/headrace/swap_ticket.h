// Blocks of a swap store on their way, and who reads them beside the store's owner.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "headrace/lease.h"

namespace headrace {

// One read or write of a whole block. wait() throws IoError or CorruptData naming block, path and offset.
class SwapTicket {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;
    virtual HostLease take() = 0;
  };
  SwapTicket() = default;
  explicit SwapTicket(std::unique_ptr<State> state) : state_(std::move(state)) {}
  explicit operator bool() const { return state_ != nullptr; }
  void wait() { state_->wait(); }
  HostLease take() { return state_->take(); }

 private:
  std::unique_ptr<State> state_;
};

// Reads blocks as they were when it was made. One thread, beside the store's owner. It neither notes damage
// nor counts a path as lost: what parity cannot rebuild is thrown by the ticket.
class SwapReader {
 public:
  virtual ~SwapReader() = default;
  virtual SwapTicket read(std::uint32_t block, HostLease buffer) = 0;
};

}  // namespace headrace
