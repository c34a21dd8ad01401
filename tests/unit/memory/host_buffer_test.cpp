#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "headrace/errors.h"
#include "headrace/memory.h"

namespace headrace {
namespace {

constexpr Bytes mebibyte = Bytes{1} << 20;

Bytes resident_bytes() {
  std::ifstream file("/proc/self/statm");
  Bytes total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<Bytes>(::sysconf(_SC_PAGESIZE));
}

TEST(HostBuffer, is_page_aligned_zero_filled_and_writable_to_its_last_byte) {
  MemoryBudget budget("host", 64 * mebibyte);
  for (const Bytes bytes : {Bytes{1}, Bytes{4095}, Bytes{4096}, Bytes{4097}, 9 * mebibyte + 1}) {
    const HostBuffer buffer(budget, MemoryTag::staging, bytes);
    ASSERT_GE(buffer.memory().size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0u);
    EXPECT_TRUE(std::all_of(buffer.memory().begin(), buffer.memory().end(),
                            [](std::byte b) { return b == std::byte{0}; }));
    std::memset(buffer.data(), 0xff, buffer.memory().size());
  }
}

TEST(HostBuffer, is_charged_in_whole_pages_for_its_life_and_follows_moves) {
  MemoryBudget budget("host", mebibyte);
  {
    HostBuffer first(budget, MemoryTag::staging, 5000);
    EXPECT_EQ(budget.current()[MemoryTag::staging], 8192u);
    HostBuffer second(std::move(first));
    EXPECT_EQ(first.data(), nullptr);
    EXPECT_EQ(budget.current()[MemoryTag::staging], 8192u);
    HostBuffer third(budget, MemoryTag::optimizer, 4096);
    third = std::move(second);
    EXPECT_EQ(budget.current()[MemoryTag::optimizer], 0u);
    EXPECT_EQ(budget.current()[MemoryTag::staging], 8192u);
  }
  EXPECT_EQ(budget.current().total(), 0u);
}

TEST(HostBuffer, of_zero_bytes_is_empty_and_free) {
  MemoryBudget budget("host", 0);
  const HostBuffer buffer(budget, MemoryTag::staging, 0);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(budget.peak_total(), 0u);
}

TEST(HostBuffer, beyond_the_limit_is_refused_before_anything_is_mapped) {
  MemoryBudget budget("host", 4096);
  EXPECT_THROW(HostBuffer(budget, MemoryTag::staging, 4097), DoesNotFit);
  EXPECT_THROW(HostBuffer(budget, MemoryTag::staging, std::numeric_limits<Bytes>::max()), DoesNotFit);
  EXPECT_EQ(budget.current().total(), 0u);
}

TEST(HostBuffer, a_mapping_the_kernel_refuses_is_an_error_and_is_not_charged) {
  MemoryBudget budget("host", std::numeric_limits<Bytes>::max());
  EXPECT_THROW(HostBuffer(budget, MemoryTag::staging, Bytes{1} << 60), Error);
  EXPECT_EQ(budget.current().total(), 0u);
}

TEST(HostBuffer, untouched_pages_are_not_resident) {
  MemoryBudget budget("host", 1024 * mebibyte);
  const Bytes before = resident_bytes();
  const HostBuffer buffer(budget, MemoryTag::optimizer, 512 * mebibyte);
  buffer.data()[100 * mebibyte] = std::byte{1};
  EXPECT_LT(resident_bytes(), before + 8 * mebibyte);
}

}  // namespace
}  // namespace headrace
