// Any k of the k + m pieces give all others; the arithmetic is the one that format.h describes.
#include "headrace/parity_code.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/swap/store_fixture.h"

namespace headrace::swap {
namespace {

using Pieces = std::vector<std::vector<std::byte>>;

Pieces make_pieces(const ParityCode& code, Bytes bytes) {
  Pieces pieces(code.data() + code.parity(), std::vector<std::byte>(bytes));
  std::vector<const std::byte*> data;
  std::vector<std::byte*> parity;
  for (std::uint32_t i = 0; i < pieces.size(); ++i) {
    if (i < code.data()) {
      testing::fill(pieces[i], 77 + i);
      data.push_back(pieces[i].data());
    } else {
      parity.push_back(pieces[i].data());
    }
  }
  code.encode(data, parity, bytes);
  return pieces;
}

// Multiplication in GF(2^8) with 0x11d, bit by bit, and the inverse by search: no table of anybody.
std::uint8_t multiply(unsigned a, unsigned b) {
  unsigned product = 0;
  for (; b != 0; b >>= 1, a = (a << 1) ^ ((a & 0x80) != 0 ? 0x11d : 0))
    if ((b & 1) != 0) product ^= a;
  return static_cast<std::uint8_t>(product);
}
std::uint8_t inverse(unsigned a) {
  for (unsigned b = 1; b < 256; ++b)
    if (multiply(a, b) == 1) return static_cast<std::uint8_t>(b);
  return 0;
}

TEST(ParityCode, parity_is_the_sum_that_the_format_describes) {
  for (const auto& [k, m] : {std::pair{1u, 1u}, {2u, 1u}, {4u, 2u}, {3u, 3u}}) {
    const Pieces pieces = make_pieces(ParityCode(k, m), 1000);
    for (unsigned j = 0; j < m; ++j)
      for (std::size_t at = 0; at < 1000; at += 37) {
        unsigned sum = 0;
        for (unsigned i = 0; i < k; ++i)
          sum ^= multiply(inverse((k + j) ^ i), static_cast<unsigned>(pieces[i][at]));
        ASSERT_EQ(static_cast<unsigned>(pieces[k + j][at]), sum) << k << "+" << m << " byte " << at;
      }
  }
}

TEST(ParityCode, any_lost_pieces_up_to_parity_are_rebuilt_from_any_others) {
  for (std::uint32_t k = 1; k <= 5; ++k)
    for (std::uint32_t m = 1; m <= 3; ++m)
      for (const Bytes bytes : {Bytes{1}, Bytes{63}, Bytes{4096}, Bytes{4097}}) {
        const ParityCode code(k, m);
        const Pieces whole = make_pieces(code, bytes);
        for (std::uint32_t mask = 0; mask < 1u << (k + m); ++mask) {  // which pieces are good
          std::vector<ParityCode::Piece> sources, lost;
          Pieces pieces = whole;
          for (std::uint32_t i = 0; i < k + m; ++i) {
            const bool good = (mask >> i & 1) != 0;
            if (!good) std::fill(pieces[i].begin(), pieces[i].end(), std::byte{0xEE});
            if (!good) lost.push_back({i, pieces[i].data()});
            if (good && sources.size() < k) sources.push_back({i, pieces[i].data()});
          }
          if (sources.size() < k) continue;
          code.rebuild(sources, lost, bytes);
          ASSERT_EQ(pieces, whole) << k << "+" << m << " mask " << mask;
        }
      }
}

TEST(ParityCode, fewer_pieces_than_data_are_a_bug_that_is_caught) {
  const ParityCode code(3, 1);
  std::byte memory[4] = {};
  const std::vector<ParityCode::Piece> two = {{0, memory}, {1, memory}};
  EXPECT_THROW(code.rebuild(two, std::vector<ParityCode::Piece>{{2, memory}}, 4), std::logic_error);
  const std::vector<ParityCode::Piece> same = {{0, memory}, {1, memory}, {1, memory}};
  EXPECT_THROW(code.rebuild(same, std::vector<ParityCode::Piece>{{2, memory}}, 4), std::logic_error);
}

}  // namespace
}  // namespace headrace::swap
