// Bandwidths against values computed by hand from the definitions of nccl-tests (doc/PERFORMANCE.md).
#include <gtest/gtest.h>

#include "headrace/bench.h"

namespace headrace {
namespace {

constexpr Bytes gigabyte = 1'000'000'000;

struct Expected {
  Collective collective;
  int ranks;
  double bus_for_one_gigabyte_in_half_a_second;
};

TEST(CollectiveBandwidth, algorithm_bandwidth_is_the_vector_over_the_time_whatever_the_ranks) {
  for (const int ranks : {1, 2, 7})
    EXPECT_DOUBLE_EQ(collective_bandwidth(Collective::all_reduce, gigabyte, 0.5, ranks).algorithm, 2.0);
  EXPECT_DOUBLE_EQ(collective_bandwidth(Collective::broadcast, Bytes{64} << 20, 0.01, 4).algorithm,
                   6.7108864);
}

TEST(CollectiveBandwidth, bus_bandwidth_has_the_factor_of_each_collective) {
  constexpr Expected cases[] = {
      {Collective::all_reduce, 2, 2.0},     {Collective::all_reduce, 4, 3.0},
      {Collective::all_reduce, 8, 3.5},     {Collective::all_gather, 2, 1.0},
      {Collective::all_gather, 4, 1.5},     {Collective::all_gather, 8, 1.75},
      {Collective::reduce_scatter, 2, 1.0}, {Collective::reduce_scatter, 4, 1.5},
      {Collective::all_to_all, 4, 1.5},     {Collective::all_to_all, 5, 1.6},
      {Collective::broadcast, 2, 2.0},      {Collective::broadcast, 8, 2.0},
  };
  for (const Expected& c : cases)
    EXPECT_DOUBLE_EQ(collective_bandwidth(c.collective, gigabyte, 0.5, c.ranks).bus,
                     c.bus_for_one_gigabyte_in_half_a_second)
        << name_of(c.collective) << " over " << c.ranks << " ranks";
}

// 134217728 / 1171.5e-6 / 1e9 = 114.569; 2 x 7 / 8 = 1.75.
TEST(CollectiveBandwidth, all_reduce_over_eight_ranks_is_what_a_calculator_gives) {
  const auto [algorithm, bus] = collective_bandwidth(Collective::all_reduce, Bytes{128} << 20, 1171.5e-6, 8);
  EXPECT_NEAR(algorithm, 114.569, 5e-4);
  EXPECT_NEAR(bus, 200.496, 5e-4);
}

TEST(CollectiveBandwidth, one_rank_needs_no_bus) {
  EXPECT_EQ(collective_bandwidth(Collective::all_gather, gigabyte, 0.5, 1).bus, 0.0);
  EXPECT_EQ(collective_bandwidth(Collective::all_reduce, gigabyte, 0.5, 1).bus, 0.0);
}

TEST(SizeText, is_exact_and_is_read_again_as_the_same_size) {
  EXPECT_EQ(size_text(4096), "4KiB");
  EXPECT_EQ(size_text(Bytes{1536} << 10), "1536KiB");
  EXPECT_EQ(size_text(1'000'007), "1000007B");
  for (const Bytes bytes : {Bytes{1}, Bytes{1023}, Bytes{1} << 20, (Bytes{1} << 40) + 1, Bytes{1} << 40})
    EXPECT_EQ(parse_bytes(size_text(bytes), "size"), bytes);
}

}  // namespace
}  // namespace headrace
