#include "aio/fork_count.h"

#include <pthread.h>

#include <atomic>
#include <new>

namespace headrace::aio {
namespace {

std::atomic<std::uint32_t> forks{0};

bool count_forks() {
  if (::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); }) != 0)
    throw std::bad_alloc();  // all that it can lack
  return true;
}

}  // namespace

std::uint32_t fork_count() {
  static const bool counting = count_forks();
  (void)counting;
  return forks.load(std::memory_order_relaxed);
}

}  // namespace headrace::aio
