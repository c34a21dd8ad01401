#include "headrace/errors.h"
#include "headrace/io_engine.h"

namespace headrace {

IoTicket& IoTicket::operator=(IoTicket&& other) noexcept {
  if (this != &other) {
    if (state_) (void)state_->wait();
    state_ = std::move(other.state_);
  }
  return *this;
}

// The kernel may still write to the buffer: it cannot go back to its pool before the transfer has ended.
IoTicket::~IoTicket() {
  if (state_) (void)state_->wait();
}

IoResult IoTicket::wait() {
  HEADRACE_CHECK(state_, "wait on an empty I/O ticket");
  return state_->wait();
}

bool IoTicket::done() {
  HEADRACE_CHECK(state_, "done on an empty I/O ticket");
  return state_->done();
}

HostLease IoTicket::take() {
  HEADRACE_CHECK(state_, "take on an empty I/O ticket");
  return state_->take();
}

}  // namespace headrace
