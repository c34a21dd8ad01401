// What every Communicator promises. Each rank of the job runs this file; expected values follow from rank and
// size alone. What moves bytes or sums is run over device memory and over host memory.
#include <gtest/gtest.h>

#include <algorithm>
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

enum class Memory : std::uint8_t { device, host };

class CommunicatorContract : public testing::Test {
 protected:
  static constexpr Bytes arena_bytes = Bytes{32} << 20;

  void finish() { device->host_wait(device->record(Lane::communicate)); }
  std::size_t rank() const { return static_cast<std::size_t>(comm->rank()); }
  std::size_t size() const { return static_cast<std::size_t>(comm->size()); }

  // Memory that collectives work on. Host code touches no device memory: copies in lane order bring it there
  // and back.
  template <class T>
  class Buffer {
   public:
    Buffer(CommunicatorContract& test, Memory memory, std::vector<T> values)
        : device_(*test.device), host_(std::move(values)), data_(host_.data()) {
      if (memory == Memory::host) return;
      data_ = reinterpret_cast<T*>(test.take(host_.size() * sizeof(T)));
      device_.copy(Lane::communicate, data_, host_.data(), host_.size() * sizeof(T));
    }
    T* data() const { return data_; }
    std::span<T> span() const { return {data_, host_.size()}; }
    // The values once the lane has passed all calls so far.
    const std::vector<T>& read() {
      if (data_ != host_.data())
        device_.copy(Lane::communicate, host_.data(), data_, host_.size() * sizeof(T));
      device_.host_wait(device_.record(Lane::communicate));
      return host_;
    }

   private:
    Device& device_;
    std::vector<T> host_;
    T* data_;
  };

 private:
  std::byte* take(Bytes bytes) {
    std::byte* taken = device->arena() + taken_bytes_;
    taken_bytes_ = round_up(taken_bytes_ + bytes + 1, 256);
    HEADRACE_CHECK(taken_bytes_ <= arena_bytes, "the test needs a larger arena");
    return taken;
  }

  CommunicatorUnderTest under_test_ = communicator_under_test(arena_bytes);
  Bytes taken_bytes_ = 0;

 protected:
  Device* const device = under_test_.device.get();
  Communicator* const comm = under_test_.communicator.get();
};

class CommunicatorMoves : public CommunicatorContract, public testing::WithParamInterface<Memory> {
 protected:
  template <class T>
  Buffer<T> buffer(std::vector<T> values) {
    return {*this, GetParam(), std::move(values)};
  }
};
INSTANTIATE_TEST_SUITE_P(Memory, CommunicatorMoves, testing::Values(Memory::device, Memory::host),
                         [](const auto& test) { return test.param == Memory::device ? "device" : "host"; });

std::byte byte_of(std::size_t rank, std::size_t i) {
  return static_cast<std::byte>((rank * 37 + i * 11 + 1) & 0xff);
}

std::vector<std::byte> bytes_of(std::size_t rank, std::size_t n) {
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = byte_of(rank, i);
  return bytes;
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

// A piece of bytes_of(r) for every rank r, end to end, and one byte that is no rank's.
struct Gathered {
  explicit Gathered(std::vector<Bytes> piece_bytes) : pieces(std::move(piece_bytes)) {
    for (std::size_t r = 0; r < pieces.size(); ++r) {
      const auto piece = bytes_of(r, pieces[r]);
      whole.insert(whole.end(), piece.begin(), piece.end());
    }
    whole.push_back(std::byte{0xee});
  }
  // What `rank` has of it before.
  std::vector<std::byte> part_of(std::size_t rank) const {
    std::vector<std::byte> part(whole.size(), std::byte{0xee});
    std::size_t start = 0;
    for (std::size_t r = 0; r < rank; ++r) start += pieces[r];
    std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(start), pieces[rank],
                part.begin() + static_cast<std::ptrdiff_t>(start));
    return part;
  }
  std::vector<Bytes> pieces;
  std::vector<std::byte> whole;
};

TEST_P(CommunicatorMoves, all_gather_of_uneven_and_empty_pieces_gives_every_rank_the_whole) {
  for (const Bytes base : {Bytes{0}, Bytes{1}, Bytes{1000}, Bytes{300000}}) {
    std::vector<Bytes> pieces(size());
    for (std::size_t r = 0; r < size(); ++r) pieces[r] = r % 3 == 2 ? 0 : base * (r + 1) + r;
    const Gathered expected(pieces);
    auto gathered = buffer(expected.part_of(rank()));
    comm->all_gather(gathered.data(), pieces, Traffic::all_gather, "h.0");
    EXPECT_EQ(gathered.read(), expected.whole) << "from " << base << " bytes";
  }
}

TEST_P(CommunicatorMoves, all_gather_of_equal_pieces_gives_every_rank_the_whole) {
  for (const Bytes bytes : {Bytes{0}, Bytes{1}, Bytes{4096}, Bytes{300001}}) {
    const Gathered expected(std::vector<Bytes>(size(), bytes));
    auto gathered = buffer(expected.part_of(rank()));
    comm->all_gather(gathered.data(), expected.pieces, Traffic::all_gather, "h.0");
    EXPECT_EQ(gathered.read(), expected.whole) << bytes << " bytes a rank";
  }
}

TEST_P(CommunicatorMoves, all_gather_counts_the_own_piece_once_for_each_other_rank) {
  std::vector<Bytes> pieces(size());
  Bytes whole = 0;
  for (std::size_t r = 0; r < size(); ++r) whole += pieces[r] = 100 * r + 1;
  const auto gathered = buffer(std::vector<std::byte>(whole));
  comm->all_gather(gathered.data(), pieces, Traffic::all_gather, "count");
  finish();
  EXPECT_EQ(comm->counters().all_gather_bytes, pieces[rank()] * (size() - 1));
  EXPECT_EQ(total(comm->counters()), comm->counters().all_gather_bytes);
  std::uint64_t sum = comm->counters().all_gather_bytes;
  comm->all_reduce(std::span(&sum, 1), Traffic::control, "sum of counters");
  finish();
  EXPECT_EQ(sum, whole * (size() - 1));
}

TEST_P(CommunicatorMoves, all_to_all_delivers_uneven_and_empty_pieces_and_copies_the_own) {
  // Rank a sends (a + 2 b) % 5 * 1000 + b bytes to rank b, nothing when that is a multiple of 5.
  const auto bytes = [](std::size_t a, std::size_t b) {
    return (a + 2 * b) % 5 == 0 ? 0 : (a + 2 * b) % 5 * 1000 + b;
  };
  std::vector<Buffer<std::byte>> out, in;
  std::vector<Communicator::Piece> send, receive;
  Bytes sent = 0;
  for (std::size_t r = 0; r < size(); ++r) {
    out.push_back(buffer(bytes_of(rank() * 4 + r, bytes(rank(), r))));
    in.push_back(buffer(std::vector<std::byte>(bytes(r, rank()))));
    send.push_back({out[r].data(), bytes(rank(), r)});
    receive.push_back({in[r].data(), bytes(r, rank())});
    if (r != rank()) sent += bytes(rank(), r);
  }
  comm->all_to_all(send, receive, Traffic::reduce_scatter, "h.1");
  for (std::size_t r = 0; r < size(); ++r)
    EXPECT_EQ(in[r].read(), bytes_of(r * 4 + rank(), bytes(r, rank()))) << "from rank " << r;
  EXPECT_EQ(comm->counters().reduce_scatter_bytes, sent);
}

// As a gradient's bucket ends: some ranks have no part of what is left.
TEST_P(CommunicatorMoves, an_all_to_all_in_which_only_rank_0_receives_needs_no_memory_elsewhere) {
  const auto out = buffer(bytes_of(rank(), 500));
  auto in = buffer(std::vector<std::byte>(500 * size()));
  std::vector<Communicator::Piece> send(size(), {out.data(), 0}), receive(size(), {in.data(), 0});
  send[0].bytes = 500;
  if (rank() == 0)
    for (std::size_t r = 0; r < size(); ++r) receive[r] = {in.data() + 500 * r, 500};
  comm->all_to_all(send, receive, Traffic::reduce_scatter, "h.1");
  std::vector<std::byte> expected = Gathered(std::vector<Bytes>(size(), 500)).whole;
  expected.pop_back();
  EXPECT_EQ(in.read(), rank() == 0 ? expected : std::vector<std::byte>(500 * size()));
}

TEST_P(CommunicatorMoves, broadcast_from_each_root_reaches_every_rank_and_counts_at_the_root) {
  Bytes expected_count = 0;
  for (std::size_t root = 0; root < size(); ++root)
    for (const std::size_t bytes : {0ul, 1ul, 70001ul}) {
      auto cast = buffer(rank() == root ? bytes_of(root, bytes) : std::vector<std::byte>(bytes));
      comm->broadcast(cast.data(), bytes, static_cast<int>(root), Traffic::control, "root");
      EXPECT_EQ(cast.read(), bytes_of(root, bytes)) << bytes << " bytes from rank " << root;
      if (rank() == root) expected_count += bytes * (size() - 1);
    }
  EXPECT_EQ(comm->counters().control_bytes, expected_count);
}

TEST_P(CommunicatorMoves, operations_run_in_lane_order_with_copies) {
  const std::vector<Bytes> pieces(size(), 1000);
  const auto first = buffer(Gathered(pieces).part_of(rank()));
  const auto zeros = buffer(std::vector<std::byte>(1000 * size()));
  auto second = buffer(std::vector<std::byte>(1000 * size() + 1));
  comm->all_gather(first.data(), pieces, Traffic::all_gather, "h.0");
  device->copy(Lane::communicate, second.data(), first.data(), 1000 * size() + 1);
  device->copy(Lane::communicate, first.data(), zeros.data(), 1000 * size());
  comm->broadcast(first.data(), 1000 * size(), 0, Traffic::control, "zeros");
  EXPECT_EQ(second.read(), Gathered(pieces).whole);
}

TEST_P(CommunicatorMoves, many_operations_in_flight_keep_their_order) {
  std::vector<std::uint64_t> values(200);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i * (rank() + 1);
  auto sums = buffer(values);
  for (std::size_t i = 0; i < values.size(); ++i)
    comm->all_reduce(sums.span().subspan(i, 1), Traffic::control, "one of many");
  sums.read();
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(sums.read()[i], i * size() * (size() + 1) / 2);
}

TEST_P(CommunicatorMoves, calls_do_not_block_the_caller) {
  const std::vector<Bytes> pieces(size(), 8);
  const auto gathered = buffer(std::vector<std::byte>(8 * size()));
  auto sum = buffer(std::vector<double>(1, 1.0));
  const auto call_each = [&] {
    comm->all_gather(gathered.data(), pieces, Traffic::all_gather, "h.2");
    comm->all_reduce(sum.span(), Traffic::control, "one");
    comm->broadcast(gathered.data(), 8, 0, Traffic::control, "zero");
  };
  call_each();  // the first messages may connect the ranks, which takes as long as the slowest needs
  finish();
  test::Gate gate;
  device->enqueue(Lane::communicate, "hold", [&] { gate.hold(); });
  call_each();
  EXPECT_FALSE(gate.timed_out()) << "a call waited for its lane";
  gate.open();
  EXPECT_EQ(sum.read()[0], static_cast<double>(size() * size()));
}

TEST_P(CommunicatorMoves, split_orders_by_key_and_keeps_the_parts_apart) {
  // Odd and even ranks, in reverse order.
  const int color = comm->rank() % 2, key = comm->size() - comm->rank();
  const auto part = comm->split(color, key);
  const std::size_t members = size() / 2 + (color == 0 ? size() % 2 : 0);
  EXPECT_EQ(static_cast<std::size_t>(part->size()), members);
  EXPECT_EQ(static_cast<std::size_t>(part->rank()), members - 1 - rank() / 2);
  auto sum = buffer(std::vector<std::uint64_t>(1, rank()));
  std::uint64_t expected = 0;
  for (std::size_t r = static_cast<std::size_t>(color); r < size(); r += 2) expected += r;
  part->all_reduce(sum.span(), Traffic::control, "part");
  EXPECT_EQ(sum.read()[0], expected);
  EXPECT_EQ(part->counters().control_bytes, 8 * (members - 1));
  EXPECT_EQ(total(comm->counters()), 0u);
}

template <class T, Memory where>
struct Summed {
  using Type = T;
  static constexpr Memory memory = where;
};
template <class Sum>
class CommunicatorSums : public CommunicatorContract {};
using Sums = testing::Types<Summed<float, Memory::device>, Summed<double, Memory::device>,
                            Summed<std::uint64_t, Memory::device>, Summed<float, Memory::host>,
                            Summed<double, Memory::host>, Summed<std::uint64_t, Memory::host>>;
struct SumName {
  template <class Sum>
  static std::string GetName(int) {
    using T = typename Sum::Type;
    const std::string type = std::is_same_v<T, float> ? "f32" : std::is_same_v<T, double> ? "f64" : "u64";
    return type + (Sum::memory == Memory::device ? "_device" : "_host");
  }
};
TYPED_TEST_SUITE(CommunicatorSums, Sums, SumName);

// Short ones, borders of the slices, and longer than a chunk.
TYPED_TEST(CommunicatorSums, all_reduce_has_the_bits_of_a_serial_sum_in_rank_order) {
  using T = typename TypeParam::Type;
  for (const std::size_t n : {0ul, 1ul, 5ul, 2048ul, 4097ul, 8209ul, 1100001ul}) {
    typename TestFixture::template Buffer<T> values(*this, TypeParam::memory, addends<T>(this->rank(), n));
    const std::vector<T> expected = serial_sum<T>(this->size(), n);
    this->comm->all_reduce(values.span(), Traffic::all_reduce, "sum");
    const std::vector<T>& sums = values.read();
    EXPECT_TRUE(n == 0 || std::memcmp(sums.data(), expected.data(), n * sizeof(T)) == 0) << n << " elements";
  }
}

TYPED_TEST(CommunicatorSums, a_long_all_reduce_sends_two_vectors_less_their_own_share_summed_over_ranks) {
  using T = typename TypeParam::Type;
  constexpr std::size_t n = 100003;
  typename TestFixture::template Buffer<T> values(*this, TypeParam::memory, addends<T>(this->rank(), n));
  this->comm->all_reduce(values.span(), Traffic::all_reduce, "sum");
  std::uint64_t sent = this->comm->counters().all_reduce_bytes;
  this->comm->all_reduce(std::span(&sent, 1), Traffic::control, "sum of counters");
  this->finish();
  EXPECT_EQ(sent, 2 * n * sizeof(T) * (this->size() - 1));
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

TEST_F(CommunicatorContract, barrier_returns_after_all_earlier_calls) {
  double sum = 1;
  comm->all_reduce(std::span(&sum, 1), Traffic::control, "one");
  comm->barrier("end");
  EXPECT_EQ(sum, static_cast<double>(size()));
}

TEST_F(CommunicatorContract, device_and_host_memory_take_turns_and_are_counted_together) {
  Buffer<float> on_device(*this, Memory::device, {1.0f});
  std::vector<float> on_host = {2.0f};
  for (int turn = 0; turn < 10; ++turn) {
    comm->all_reduce(on_device.span(), Traffic::all_reduce, "device");
    comm->all_reduce(std::span(on_host), Traffic::all_reduce, "host");
  }
  const auto factor = static_cast<float>(std::pow(size(), 10));
  EXPECT_EQ(on_device.read()[0], factor);
  EXPECT_EQ(on_host[0], 2 * factor);
  EXPECT_EQ(comm->counters().all_reduce_bytes, 20 * sizeof(float) * (size() - 1));
}

TEST_F(CommunicatorContract, a_wrong_number_of_pieces_is_refused_by_the_call_itself) {
  std::byte host[8];
  for (std::byte* buffer : {device->arena(), host}) {
    const std::vector<Bytes> pieces(size() + 1, 1);
    EXPECT_THROW(comm->all_gather(buffer, pieces, Traffic::all_gather, "bad"), std::logic_error);
    const std::vector<Communicator::Piece> none;
    EXPECT_THROW(comm->all_to_all(none, none, Traffic::reduce_scatter, "bad"), std::logic_error);
    EXPECT_THROW(comm->broadcast(buffer, 1, comm->size(), Traffic::control, "bad"), std::logic_error);
  }
}

}  // namespace
}  // namespace headrace
