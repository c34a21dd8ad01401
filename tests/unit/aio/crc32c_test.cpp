#include <gtest/gtest.h>
#include <sys/mman.h>

#include <random>
#include <string_view>
#include <vector>

#include "headrace/io_engine.h"

namespace headrace {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::uint32_t bitwise_crc32c(std::span<const std::byte> data) {
  std::uint32_t state = 0xffffffff;
  for (const std::byte byte : data) {
    state ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ (0x82f63b78u & -(state & 1));
  }
  return ~state;
}

TEST(Crc32c, has_the_values_of_rfc_3720) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32)), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43u);
}

TEST(Crc32c, of_nothing_is_zero_and_changes_no_seed) {
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c({}, 0x12345678u), 0x12345678u);
}

TEST(Crc32c, equals_the_bitwise_definition_at_every_length_and_address) {
  std::mt19937 random(3);
  std::vector<std::byte> data(600);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  for (std::size_t length = 0; length < 520; ++length) {
    const auto part = std::span<const std::byte>(data).subspan(length % 17, length);
    ASSERT_EQ(crc32c(part), bitwise_crc32c(part)) << length;
  }
}

TEST(Crc32c, is_continued_by_the_seed_wherever_the_data_is_cut) {
  const auto data = bytes_of("a headrace brings stored water to a turbine");
  for (std::size_t cut = 0; cut <= data.size(); ++cut)
    EXPECT_EQ(crc32c(data.subspan(cut), crc32c(data.first(cut))), crc32c(data));
}

// ISA-L counts in an int. The zero page mapped many times costs address space only.
TEST(Crc32c, of_more_than_2_gib_equals_the_same_in_parts) {
  constexpr std::size_t bytes = (std::size_t{9} << 28) + 5;
  void* zeros = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(zeros, MAP_FAILED);
  ::madvise(zeros, bytes, MADV_NOHUGEPAGE);
  const std::span<const std::byte> data(static_cast<const std::byte*>(zeros), bytes);
  std::uint32_t in_parts = 0;
  const std::vector<std::byte> part(std::size_t{1} << 20);
  for (std::size_t at = 0; at < bytes; at += part.size())
    in_parts = crc32c(std::span(part).first(std::min(part.size(), bytes - at)), in_parts);
  EXPECT_EQ(crc32c(data), in_parts);
  ::munmap(zeros, bytes);
}

}  // namespace
}  // namespace headrace
