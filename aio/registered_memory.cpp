#include "aio/registered_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "headrace/errors.h"
#include "headrace/log.h"

namespace headrace::aio {
namespace {

Bytes locked_memory_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  return limit.rlim_cur;
}

// Before the kernel pins the pages under the ring's lock; not where that is going to be refused, most likely.
void touch_pages([[maybe_unused]] std::span<std::byte> memory) {
#ifdef MADV_POPULATE_WRITE
  if (memory.size() > locked_memory_limit()) return;
  constexpr std::uintptr_t page = 4096;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data()) / page * page;
  const auto end = round_up(reinterpret_cast<std::uintptr_t>(memory.data()) + memory.size(), page);
  ::madvise(reinterpret_cast<void*>(begin), end - begin,
            MADV_POPULATE_WRITE);  // registration tells of failure
#endif
}

std::string cause_and_remedy(int code) {
  const Bytes limit = locked_memory_limit();
  if (code != ENOMEM) return "this memory cannot be locked.";
  if (limit == RLIM_INFINITY) return "the kernel is short of memory.";
  return fmt::format(
      "the limit of locked memory is {}, and every block device in use locks its own. Raise it (ulimit -l, "
      "or LimitMEMLOCK= of the service).",
      format_bytes(limit));
}

void warn_of_refused_memory(int code, Bytes bytes) {
  warn_once("registration refused",
            fmt::format("io_uring was refused {} of locked memory for its buffers ({}): {} Until then each "
                        "request looks its pages up, which takes some CPU time.",
                        format_bytes(bytes), std::strerror(code), cause_and_remedy(code)));
}

}  // namespace

void RegisteredMemory::add(RegionId region, std::span<std::byte> memory) {
  if (!ring_.has_buffer_table()) return;
  std::vector<MemoryTable::Piece> pieces;
  {
    const std::lock_guard lock(mutex_);
    pieces = table_.take(memory);
  }
  int code = 0;
  for (const MemoryTable::Piece& piece : pieces) {
    if (code == 0) {  // after one refusal the others would be refused too
      touch_pages(piece.memory);
      code = ring_.set_buffer(piece.place, piece.memory);
    }
    const std::lock_guard lock(mutex_);
    if (code == 0)
      table_.publish(region, piece);
    else
      table_.give_back(piece.place);
  }
  if (code != 0) warn_of_refused_memory(code, memory.size());
}

void RegisteredMemory::remove(RegionId region) {
  std::vector<std::uint32_t> places;
  {
    const std::lock_guard lock(mutex_);
    places = table_.withdraw(region);
  }
  for (const std::uint32_t place : places) {
    (void)ring_.set_buffer(place, {});
    const std::lock_guard lock(mutex_);
    table_.give_back(place);
  }
}

int RegisteredMemory::place_of(const std::byte* address, Bytes bytes) const {
  const std::lock_guard lock(mutex_);
  const auto place = table_.find(address, bytes);
  return place ? static_cast<int>(*place) : -1;
}

}  // namespace headrace::aio
