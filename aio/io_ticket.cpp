#include <thread>

#include "aio/job.h"
#include "headrace/errors.h"
#include "headrace/io_wait_any.h"

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

// For tickets that nothing can wake a thread for together.
std::vector<std::size_t> IoTicket::State::wait_for_any(std::span<State* const> among) {
  while (true) {
    std::vector<std::size_t> ended;
    for (std::size_t place = 0; place < among.size(); ++place)
      if (among[place]->done()) ended.push_back(place);
    if (!ended.empty() || among.empty()) return ended;
    std::this_thread::sleep_for(aio::until_looking_again);
  }
}

std::vector<std::size_t> wait_for_any(std::span<IoTicket* const> tickets) {
  std::vector<IoTicket::State*> states;
  states.reserve(tickets.size());
  for (const IoTicket* ticket : tickets) {
    HEADRACE_CHECK(*ticket, "wait for an empty I/O ticket");
    states.push_back(ticket->state());
  }
  return states.empty() ? std::vector<std::size_t>{} : states.front()->wait_for_any(states);
}

HostLease IoTicket::take() {
  HEADRACE_CHECK(state_, "take on an empty I/O ticket");
  return state_->take();
}

}  // namespace headrace
