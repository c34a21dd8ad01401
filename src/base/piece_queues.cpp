#include "src/base/piece_queues.h"

#include <algorithm>

#include "src/base/apportion.h"

namespace headrace {

PieceQueues::PieceQueues(std::uint64_t count, const Body& body, std::span<const std::uint64_t> weights)
    : body_(body), queues_(weights.size() + 1), left_(count) {
  const std::vector<std::uint64_t> parts = apportion(count, weights);
  std::uint64_t begin = 0;
  for (std::size_t h = 0; h < parts.size(); ++h) {
    queues_[h].begin = begin;
    queues_[h].count = parts[h];
    begin += parts[h];
  }
}

PieceQueues::PieceQueues(std::uint64_t count, const Body& body, std::size_t homes,
                         const std::function<std::size_t(std::uint64_t piece)>& home_of)
    : body_(body), order_(count), queues_(homes + 1), left_(count) {
  std::vector<std::uint32_t> home(count);
  for (std::uint64_t piece = 0; piece < count; ++piece) {
    home[piece] = static_cast<std::uint32_t>(home_of(piece));
    ++queues_[home[piece]].count;
  }
  std::vector<std::uint64_t> next(queues_.size());
  for (std::size_t h = 1; h < queues_.size(); ++h)
    next[h] = queues_[h].begin = queues_[h - 1].begin + queues_[h - 1].count;
  for (std::uint64_t piece = 0; piece < count; ++piece) order_[next[home[piece]]++] = piece;
}

void PieceQueues::take_until_none(std::size_t home) noexcept {
  const std::size_t homes = queues_.size() - 1;
  if (home < homes) take_from(queues_[home]);
  take_from(queues_[homes]);
  for (std::size_t other = 1; other < homes; ++other) take_from(queues_[(home + other) % homes]);
}

void PieceQueues::take_from(Queue& queue) noexcept {
  for (std::uint64_t k; (k = queue.next.fetch_add(1)) < queue.count;) {
    const std::uint64_t at = queue.begin + k;
    try {
      body_(order_.empty() ? at : order_[at]);
    } catch (...) {
      give_up();  // before the piece counts as done: the error must be there when the last one is
    }
    done(1);
  }
}

void PieceQueues::give_up() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!first_error_) first_error_ = std::current_exception();
  }
  for (Queue& queue : queues_) {
    const std::uint64_t taken = queue.next.exchange(queue.count);
    if (taken < queue.count) done(queue.count - taken);
  }
}

void PieceQueues::done(std::uint64_t pieces) noexcept {
  if (left_.fetch_sub(pieces) == pieces) left_.notify_all();
}

void PieceQueues::wait() {
  for (std::uint64_t left; (left = left_.load()) != 0;) left_.wait(left);
  if (first_error_) std::rethrow_exception(first_error_);
}

}  // namespace headrace
