// What every Communicator promises. Each rank of the job runs this file; expected values follow from rank and
// size alone.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "contract/communicator_under_test.h"
#include "headrace/device.h"
#include "headrace/errors.h"
#include "tests/support/bounded_wait.h"

namespace headrace {
namespace {

class CommunicatorContract : public testing::Test {
 protected:
  void finish() { device->host_wait(device->record(Lane::communicate)); }
  std::size_t rank() const { return static_cast<std::size_t>(comm->rank()); }
  std::size_t size() const { return static_cast<std::size_t>(comm->size()); }

  std::unique_ptr<Device> device = make_cpu_device({.memory_bytes = 4096});
  std::unique_ptr<Communicator> comm = communicator_under_test(*device);
};

std::byte byte_of(std::size_t rank, std::size_t i) {
  return static_cast<std::byte>((rank * 37 + i * 11 + 1) & 0xff);
}

// Values whose sum depends on the order of additions.
template <class T>
T addend(std::size_t rank, std::size_t i) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(0xfedcba9876543210ull * (rank + 1) + i * i);
  return static_cast<T>(std::sin(static_cast<double>(i * 7 + rank)) *
                        std::pow(10.0, static_cast<double>((i + rank) % 9)));
}

template <class T>
std::vector<T> addends(std::size_t rank, std::size_t n) {
  std::vector<T> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = addend<T>(rank, i);
  return values;
}

template <class T>
std::vector<T> serial_sum(std::size_t ranks, std::size_t n) {
  std::vector<T> sums = addends<T>(0, n);
  for (std::size_t r = 1; r < ranks; ++r)
    for (std::size_t i = 0; i < n; ++i) sums[i] += addend<T>(r, i);
  return sums;
}

Bytes total(const TrafficCounters& c) {
  return c.all_gather_bytes + c.reduce_scatter_bytes + c.all_reduce_bytes + c.control_bytes;
}

TEST_F(CommunicatorContract, all_gather_of_uneven_and_empty_pieces_gives_every_rank_the_whole) {
  for (const Bytes base : {Bytes{0}, Bytes{1}, Bytes{1000}, Bytes{300000}}) {
    std::vector<Bytes> pieces(size());
    for (std::size_t r = 0; r < size(); ++r) pieces[r] = r % 3 == 2 ? 0 : base * (r + 1) + r;
    std::vector<std::byte> expected;
    for (std::size_t r = 0; r < size(); ++r)
      for (std::size_t i = 0; i < pieces[r]; ++i) expected.push_back(byte_of(r, i));
    std::vector<std::byte> buffer(expected.size() + 1, std::byte{0xee});
    std::size_t start = 0;
    for (std::size_t r = 0; r < rank(); ++r) start += pieces[r];
    std::copy_n(expected.begin() + static_cast<std::ptrdiff_t>(start), pieces[rank()],
                buffer.begin() + static_cast<std::ptrdiff_t>(start));
    comm->all_gather(buffer.data(), pieces, Traffic::all_gather, "h.0");
    finish();
    EXPECT_EQ(buffer.back(), std::byte{0xee}) << "a byte beyond the last piece was written";
    buffer.pop_back();
    EXPECT_EQ(buffer, expected);
  }
}

TEST_F(CommunicatorContract, all_gather_counts_the_own_piece_once_for_each_other_rank) {
  std::vector<Bytes> pieces(size());
  Bytes whole = 0;
  for (std::size_t r = 0; r < size(); ++r) whole += pieces[r] = 100 * r + 1;
  std::vector<std::byte> buffer(whole);
  comm->all_gather(buffer.data(), pieces, Traffic::all_gather, "count");
  finish();
  EXPECT_EQ(comm->counters().all_gather_bytes, pieces[rank()] * (size() - 1));
  EXPECT_EQ(total(comm->counters()), comm->counters().all_gather_bytes);
  std::uint64_t sum = comm->counters().all_gather_bytes;
  comm->all_reduce(std::span(&sum, 1), Traffic::control, "sum of counters");
  finish();
  EXPECT_EQ(sum, whole * (size() - 1));
}

TEST_F(CommunicatorContract, all_to_all_delivers_uneven_and_empty_pieces_and_copies_the_own) {
  // Rank a sends (a + 2 b) % 5 * 1000 + b bytes to rank b, nothing when that is a multiple of 5.
  const auto bytes = [](std::size_t a, std::size_t b) {
    return (a + 2 * b) % 5 == 0 ? 0 : (a + 2 * b) % 5 * 1000 + b;
  };
  std::vector<std::vector<std::byte>> out(size()), in(size());
  std::vector<Communicator::Piece> send(size()), receive(size());
  Bytes sent = 0;
  for (std::size_t r = 0; r < size(); ++r) {
    for (std::size_t i = 0; i < bytes(rank(), r); ++i) out[r].push_back(byte_of(rank() * 4 + r, i));
    in[r].resize(bytes(r, rank()));
    send[r] = {out[r].data(), out[r].size()};
    receive[r] = {in[r].data(), in[r].size()};
    if (r != rank()) sent += out[r].size();
  }
  comm->all_to_all(send, receive, Traffic::reduce_scatter, "h.1");
  finish();
  for (std::size_t r = 0; r < size(); ++r)
    for (std::size_t i = 0; i < in[r].size(); ++i)
      ASSERT_EQ(in[r][i], byte_of(r * 4 + rank(), i)) << "byte " << i << " from rank " << r;
  EXPECT_EQ(comm->counters().reduce_scatter_bytes, sent);
}

template <class T>
class CommunicatorSums : public CommunicatorContract {};
using SumTypes = testing::Types<float, double, std::uint64_t>;
struct SumTypeName {
  template <class T>
  static std::string GetName(int) {
    return std::is_same_v<T, float> ? "f32" : std::is_same_v<T, double> ? "f64" : "u64";
  }
};
TYPED_TEST_SUITE(CommunicatorSums, SumTypes, SumTypeName);

// Short ones, borders of the slices, and longer than a chunk.
TYPED_TEST(CommunicatorSums, all_reduce_has_the_bits_of_a_serial_sum_in_rank_order) {
  for (const std::size_t n : {0ul, 1ul, 5ul, 2048ul, 4097ul, 8209ul, 1100001ul}) {
    std::vector<TypeParam> values = addends<TypeParam>(this->rank(), n);
    const std::vector<TypeParam> expected = serial_sum<TypeParam>(this->size(), n);
    this->comm->all_reduce(std::span(values), Traffic::all_reduce, "sum");
    this->finish();
    EXPECT_TRUE(n == 0 || std::memcmp(values.data(), expected.data(), n * sizeof(TypeParam)) == 0)
        << n << " elements";
  }
}

TYPED_TEST(CommunicatorSums, a_long_all_reduce_sends_two_vectors_less_their_own_share_summed_over_ranks) {
  constexpr std::size_t n = 100003;
  std::vector<TypeParam> values = addends<TypeParam>(this->rank(), n);
  this->comm->all_reduce(std::span(values), Traffic::all_reduce, "sum");
  std::uint64_t sent = this->comm->counters().all_reduce_bytes;
  this->comm->all_reduce(std::span(&sent, 1), Traffic::control, "sum of counters");
  this->finish();
  EXPECT_EQ(sent, 2 * n * sizeof(TypeParam) * (this->size() - 1));
}

TEST_F(CommunicatorContract, broadcast_from_each_root_reaches_every_rank_and_counts_at_the_root) {
  Bytes expected_count = 0;
  for (std::size_t root = 0; root < size(); ++root)
    for (const std::size_t bytes : {0ul, 1ul, 70001ul}) {
      std::vector<std::byte> buffer(bytes);
      if (rank() == root)
        for (std::size_t i = 0; i < bytes; ++i) buffer[i] = byte_of(root, i);
      comm->broadcast(buffer.data(), bytes, static_cast<int>(root), Traffic::control, "root");
      finish();
      for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(buffer[i], byte_of(root, i));
      if (rank() == root) expected_count += bytes * (size() - 1);
    }
  EXPECT_EQ(comm->counters().control_bytes, expected_count);
}

TEST_F(CommunicatorContract, operations_run_in_lane_order_with_other_work) {
  std::vector<std::uint64_t> value = {0};
  device->enqueue(Lane::communicate, "set", [&] { value[0] = rank() + 1; });
  comm->all_reduce(std::span(value), Traffic::control, "after set");
  std::uint64_t seen = 0;
  device->enqueue(Lane::communicate, "read", [&] { seen = value[0]; });
  finish();
  EXPECT_EQ(seen, size() * (size() + 1) / 2);
}

TEST_F(CommunicatorContract, calls_do_not_block_the_caller) {
  test::Gate gate;
  device->enqueue(Lane::communicate, "hold", [&] { gate.hold(); });
  std::vector<Bytes> pieces(size(), 8);
  std::vector<std::byte> buffer(8 * size());
  double sum = 1;
  comm->all_gather(buffer.data(), pieces, Traffic::all_gather, "h.2");
  comm->all_reduce(std::span(&sum, 1), Traffic::control, "one");
  comm->broadcast(buffer.data(), 8, 0, Traffic::control, "zero");
  EXPECT_FALSE(gate.timed_out()) << "a call waited for its lane";
  gate.open();
  finish();
  EXPECT_EQ(sum, static_cast<double>(size()));
}

TEST_F(CommunicatorContract, many_operations_in_flight_keep_their_order) {
  std::vector<std::uint64_t> values(200);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = i * (rank() + 1);
    comm->all_reduce(std::span(&values[i], 1), Traffic::control, "one of many");
  }
  finish();
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], i * size() * (size() + 1) / 2);
}

TEST_F(CommunicatorContract, barrier_returns_after_all_earlier_calls) {
  double sum = 1;
  comm->all_reduce(std::span(&sum, 1), Traffic::control, "one");
  comm->barrier("end");
  EXPECT_EQ(sum, static_cast<double>(size()));
}

TEST_F(CommunicatorContract, split_orders_by_key_and_keeps_the_parts_apart) {
  // Odd and even ranks, in reverse order.
  const int color = comm->rank() % 2, key = comm->size() - comm->rank();
  const auto part = comm->split(color, key);
  const std::size_t members = size() / 2 + (color == 0 ? size() % 2 : 0);
  EXPECT_EQ(static_cast<std::size_t>(part->size()), members);
  EXPECT_EQ(static_cast<std::size_t>(part->rank()), members - 1 - rank() / 2);
  std::uint64_t sum = rank(), expected = 0;
  for (std::size_t r = static_cast<std::size_t>(color); r < size(); r += 2) expected += r;
  part->all_reduce(std::span(&sum, 1), Traffic::control, "part");
  finish();
  EXPECT_EQ(sum, expected);
  EXPECT_EQ(part->counters().control_bytes, 8 * (members - 1));
  EXPECT_EQ(total(comm->counters()), 0u);
}

TEST_F(CommunicatorContract, a_wrong_number_of_pieces_is_refused_by_the_call_itself) {
  std::byte buffer[8];
  const std::vector<Bytes> pieces(size() + 1, 1);
  EXPECT_THROW(comm->all_gather(buffer, pieces, Traffic::all_gather, "bad"), std::logic_error);
  const std::vector<Communicator::Piece> none;
  EXPECT_THROW(comm->all_to_all(none, none, Traffic::reduce_scatter, "bad"), std::logic_error);
  EXPECT_THROW(comm->broadcast(buffer, 1, comm->size(), Traffic::control, "bad"), std::logic_error);
}

}  // namespace
}  // namespace headrace
