#include "support/cuda_emulation/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "support/cuda_emulation/options.h"
#include "support/cuda_emulation/runtime.h"

namespace cuda_emulation {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t device_alignment = 256;

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

// Sorted by base, and once more by alias. Readers take the newest table as it is; old ones are kept to the
// end, since a reader may still hold them (there are few: one a registration).
struct Table {
  std::vector<const MemoryRange*> by_base, by_alias;
  std::vector<const MemoryRange*> freed;  // of the device: their addresses come back to no one
};

// Read by every watched access, also those of the registry's own making.
constinit std::atomic<const Table*> newest{nullptr};

struct Registry {
  std::mutex mutex;
  std::map<std::uintptr_t, std::unique_ptr<MemoryRange>> ranges;
  std::vector<std::unique_ptr<MemoryRange>> freed;
  std::vector<std::unique_ptr<Table>> tables;
  std::size_t device_bytes = 0;

  void publish() {
    auto table = std::make_unique<Table>();
    for (const auto& [base, range] : ranges) table->by_base.push_back(range.get());
    for (const auto& range : freed)
      if (range->device) table->freed.push_back(range.get());
    table->by_alias = table->by_base;
    std::sort(table->by_alias.begin(), table->by_alias.end(),
              [](const MemoryRange* a, const MemoryRange* b) { return a->alias < b->alias; });
    newest.store(table.get(), std::memory_order_release);
    tables.push_back(std::move(table));
  }
  void retire(decltype(ranges)::iterator found) {
    MemoryRange& range = *found->second;
    freed.push_back(std::move(found->second));
    ranges.erase(found);
    publish();
    range.shadow.release();
  }
};

Registry& registry() {
  static Registry* const one = new Registry;  // streams may outlive static destruction
  return *one;
}

template <class Key>
const MemoryRange* last_not_above(const std::vector<const MemoryRange*>& sorted, std::uintptr_t address,
                                  Key key) {
  const auto after =
      std::upper_bound(sorted.begin(), sorted.end(), address,
                       [&](std::uintptr_t at, const MemoryRange* range) { return at < key(range); });
  return after == sorted.begin() ? nullptr : *(after - 1);
}

void* map_pages(std::size_t bytes, int protection) {
  void* at = ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) violation(fmt::format("cannot map {} bytes for the emulated device", bytes));
  return at;
}

// Both ends alone: the whole of a large arena, of which a test uses little, would take the machine's memory.
void poison(std::byte* memory, std::size_t bytes) {
  constexpr std::size_t each_end = std::size_t{24} << 20;
  constexpr int pattern = 0xcb;
  const std::size_t head = std::min(bytes, each_end), tail = std::min(bytes - head, each_end);
  std::memset(memory, pattern, head);
  std::memset(memory + bytes - tail, pattern, tail);
}

std::uintptr_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

}  // namespace

MemoryRange::MemoryRange(std::uintptr_t base_in, std::uintptr_t alias_in, std::size_t bytes_in,
                         bool device_in)
    : base(base_in), alias(alias_in), bytes(bytes_in), device(device_in), shadow(bytes_in) {
  static std::atomic<std::uint64_t> next{1};
  serial = next++;
}

void* allocate_device(std::size_t bytes) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (all.device_bytes + bytes > options().device_memory_bytes) return nullptr;
  const std::size_t pages = whole_pages(std::max<std::size_t>(bytes, 1));
  const std::size_t slack = (pages - bytes) / device_alignment * device_alignment;
  const auto base = address_of(map_pages(pages, PROT_NONE)) + slack;
  const auto alias_pages = address_of(map_pages(pages + 2 * page_bytes, PROT_NONE)) + page_bytes;
  ::mprotect(reinterpret_cast<void*>(alias_pages), pages, PROT_READ | PROT_WRITE);
  // What a program finds in fresh device memory is not zero.
  if (options().poison_device_memory) poison(reinterpret_cast<std::byte*>(alias_pages), pages);
  all.ranges.emplace(base, std::make_unique<MemoryRange>(base, alias_pages + slack, bytes, true));
  all.device_bytes += bytes;
  all.publish();
  return reinterpret_cast<void*>(base);
}

bool free_device(void* base) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.ranges.find(address_of(base));
  if (found == all.ranges.end() || !found->second->device) return false;
  const MemoryRange& range = *found->second;
  const auto first_page = [](std::uintptr_t at) { return at / page_bytes * page_bytes; };
  const std::size_t pages =
      range.base + range.bytes > first_page(range.base)
          ? whole_pages(range.base + std::max<std::size_t>(range.bytes, 1) - first_page(range.base))
          : page_bytes;
  // The addresses stay reserved, so that a use after free faults instead of finding another allocation.
  ::mmap(reinterpret_cast<void*>(first_page(range.alias)), pages, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  all.device_bytes -= range.bytes;
  all.retire(found);
  return true;
}

bool register_host(void* base, std::size_t bytes) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto first = address_of(base);
  for (const auto& [at, range] : all.ranges)
    if (!range->device && first < at + range->bytes && at < first + bytes) return false;
  all.ranges.emplace(first, std::make_unique<MemoryRange>(first, first, bytes, false));
  all.publish();
  return true;
}

bool unregister_host(void* base) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.ranges.find(address_of(base));
  if (found == all.ranges.end() || found->second->device) return false;
  all.retire(found);
  return true;
}

std::size_t device_bytes_in_use() {
  const std::lock_guard lock(registry().mutex);
  return registry().device_bytes;
}

const MemoryRange* range_of(std::uintptr_t address) {
  const Table* table = newest.load(std::memory_order_acquire);
  if (table == nullptr) return nullptr;
  const auto* range = last_not_above(table->by_base, address, [](const MemoryRange* r) { return r->base; });
  return range != nullptr && range->holds(address) ? range : nullptr;
}

const MemoryRange* range_of_alias(std::uintptr_t alias_address) {
  const Table* table = newest.load(std::memory_order_acquire);
  if (table == nullptr) return nullptr;
  const auto* range =
      last_not_above(table->by_alias, alias_address, [](const MemoryRange* r) { return r->alias; });
  return range != nullptr && range->alias_holds(alias_address) ? range : nullptr;
}

const MemoryRange* freed_range_of(std::uintptr_t address) {
  const Table* table = newest.load(std::memory_order_acquire);
  if (table == nullptr) return nullptr;
  for (const MemoryRange* range : table->freed)
    if (range->holds(address) || range->alias_holds(address)) return range;
  return nullptr;
}

bool any_range_in(std::uintptr_t alias_first, std::uintptr_t alias_end) {
  const Table* table = newest.load(std::memory_order_acquire);
  if (table == nullptr) return false;
  const auto* range =
      last_not_above(table->by_alias, alias_end - 1, [](const MemoryRange* r) { return r->alias; });
  return range != nullptr && range->alias + range->bytes > alias_first;
}

const MemoryRange* range_near_alias(std::uintptr_t alias_address) {
  const Table* table = newest.load(std::memory_order_acquire);
  if (table == nullptr) return nullptr;
  for (const MemoryRange* range : table->by_alias) {
    if (!range->device) continue;
    const std::uintptr_t first = range->alias / page_bytes * page_bytes - page_bytes;
    const std::uintptr_t end = whole_pages(range->alias + range->bytes) + page_bytes;
    if (alias_address >= first && alias_address < end) return range;
  }
  return nullptr;
}

}  // namespace cuda_emulation
