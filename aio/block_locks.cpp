#include "aio/block_locks.h"

namespace headrace::aio {

void BlockLocks::acquire(const BlockName& block, std::function<void()> granted) {
  {
    const std::lock_guard lock(mutex_);
    const auto [place, free] = waiting_.try_emplace(block);
    if (!free) return place->second.push_back(std::move(granted));
  }
  granted();
}

void BlockLocks::release(const BlockName& block) {
  std::function<void()> next;
  {
    const std::lock_guard lock(mutex_);
    const auto place = waiting_.find(block);
    if (place->second.empty()) {
      waiting_.erase(place);
      return;
    }
    next = std::move(place->second.front());
    place->second.pop_front();
  }
  next();
}

}  // namespace headrace::aio
