// Transfers of any alignment on direct files, in every engine.
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/fault_io_engine.h"
#include "tests/unit/aio/hooked_engines.h"
#include "tests/unit/aio/io_fixture.h"

namespace headrace::testing {
namespace {

using namespace headrace::literals;

// A range of memory that starts `shift` bytes after an aligned address, with a guard before and after.
class ShiftedMemory {
 public:
  ShiftedMemory(Bytes bytes, Bytes shift) : memory_(page + shift + bytes + page, guard), bytes_(bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = round_up(address, page) - address + shift;
  }
  std::span<std::byte> span() const { return std::span(memory_).subspan(begin_, bytes_); }
  HostLease lease() const { return HostLease::borrowed(span()); }
  bool guards_intact() const {
    const auto is_guard = [](std::byte byte) { return byte == guard; };
    return std::ranges::all_of(std::span(memory_).first(begin_), is_guard) &&
           std::ranges::all_of(std::span(memory_).subspan(begin_ + bytes_), is_guard);
  }

 private:
  static constexpr Bytes page = 4096;
  static constexpr std::byte guard{0x5a};
  mutable std::vector<std::byte> memory_;
  Bytes begin_ = 0, bytes_;
};

class Unaligned : public ::testing::TestWithParam<HookedEngine> {
 protected:
  std::unique_ptr<IoEngine> make(const IoEngineOptions& options = {}) const {
    return GetParam().make(options, plan_->request_hook());
  }
  IoFile create() const {
    IoFile file = IoFile::open(folder_.file("data"), IoFile::Mode::create);
    EXPECT_TRUE(file.direct()) << "these tests need a file system with direct I/O";
    return file;
  }
  std::vector<std::byte> contents() const {
    const IoFile file = IoFile::open(folder_.file("data"), IoFile::Mode::read_only, false);
    std::vector<std::byte> bytes(file.size_bytes());
    EXPECT_EQ(::pread(file.fd(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return bytes;
  }
  IoResult move(IoEngine& engine, IoDirection direction, const IoFile& file, std::uint64_t offset,
                const ShiftedMemory& memory) {
    return engine.submit(direction, file, offset, memory.lease(), memory.span().size()).wait();
  }

  IoFolder folder_;
  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
};

void fill_random(std::span<std::byte> memory, std::mt19937& random) {
  for (std::byte& byte : memory) byte = static_cast<std::byte>(random());
}

// Model: a vector of bytes that grows as a file does.
TEST_P(Unaligned, random_writes_and_reads_equal_those_of_a_plain_array) {
  const auto engine = make({.queue_depth = 3, .request_bytes = 16_KiB});
  const IoFile file = create();
  std::mt19937 random(11);
  std::vector<std::byte> model;
  for (int step = 0; step < 150; ++step) {
    const std::uint64_t offset = random() % 40'000;
    const Bytes bytes = step % 3 == 0 ? random() % 100 : random() % 60'000;
    const ShiftedMemory memory(bytes, step % 2 == 0 ? offset % 4096 : random() % 600);
    fill_random(memory.span(), random);
    expect_whole(move(*engine, IoDirection::write, file, offset, memory), bytes);
    if (bytes > 0) model.resize(std::max<std::size_t>(model.size(), offset + bytes));
    std::ranges::copy(memory.span(), model.begin() + static_cast<std::ptrdiff_t>(offset));
    ASSERT_EQ(file.size_bytes(), model.size()) << step;

    const std::uint64_t from = random() % model.size();
    const ShiftedMemory read(random() % (model.size() - from + 1), random() % 600);
    expect_whole(move(*engine, IoDirection::read, file, from, read), read.span().size());
    ASSERT_TRUE(std::ranges::equal(read.span(), std::span(model).subspan(from, read.span().size()))) << step;
    ASSERT_TRUE(read.guards_intact());
  }
  EXPECT_EQ(contents(), model);
}

TEST_P(Unaligned, only_the_ends_are_copied_where_memory_is_aligned_with_the_file) {
  const auto engine = make();
  const IoFile file = create();
  const ShiftedMemory memory(1_MiB, 100);
  expect_whole(move(*engine, IoDirection::write, file, 100, memory), 1_MiB);
  EXPECT_EQ(engine->counters().bounced_bytes, file.offset_alignment());
  EXPECT_EQ(engine->counters().written_bytes, 1_MiB);
  expect_whole(move(*engine, IoDirection::read, file, 100, ShiftedMemory(1_MiB, 101)), 1_MiB);
  EXPECT_EQ(engine->counters().bounced_bytes, 1_MiB + file.offset_alignment());
}

TEST_P(Unaligned, large_bounced_transfers_are_whole) {
  const auto engine = make({.queue_depth = 2});
  const IoFile file = create();
  std::mt19937 random(4);
  const ShiftedMemory written(5_MiB + 77, 1), read(5_MiB + 77, 3);
  fill_random(written.span(), random);
  expect_whole(move(*engine, IoDirection::write, file, 4096, written), 5_MiB + 77);
  expect_whole(move(*engine, IoDirection::read, file, 4096, read), 5_MiB + 77);
  EXPECT_TRUE(std::ranges::equal(written.span(), read.span()));
  EXPECT_EQ(file.size_bytes(), 4096 + 5_MiB + 77);
}

// Many small neighbours in every block, all in flight together, from two threads.
TEST_P(Unaligned, writes_that_share_blocks_lose_no_byte) {
  const auto engine = make({.queue_depth = 8});
  const IoFile file = create();
  constexpr Bytes each = 100;
  constexpr std::size_t count = 400;
  std::mt19937 random(8);
  const ShiftedMemory memory(each * count, 0);
  fill_random(memory.span(), random);
  const auto write_some = [&](std::size_t first) {
    std::vector<IoTicket> tickets;
    for (std::size_t i = first; i < count; i += 2)
      tickets.push_back(engine->submit(IoDirection::write, file, i * each,
                                       HostLease::borrowed(memory.span().subspan(i * each, each)), each));
    for (IoTicket& ticket : tickets) expect_whole(ticket.wait(), each);
  };
  {
    const std::jthread other(write_some, 1);
    write_some(0);
  }
  EXPECT_TRUE(std::ranges::equal(contents(), memory.span()));
}

// The block at the old end is cut off only while nothing is written beyond it.
TEST_P(Unaligned, a_file_extended_from_several_sides_has_the_size_of_the_farthest_write) {
  std::mt19937 random(6);
  for (int round = 0; round < 20; ++round) {
    const auto engine = make({.queue_depth = 8, .request_bytes = 4096});
    const IoFile file = create();
    const ShiftedMemory memory(30'000, 0);
    fill_random(memory.span(), random);
    std::vector<std::size_t> cuts = {0, 30'000};
    for (int i = 0; i < 6; ++i) cuts.push_back(random() % 30'000);
    std::ranges::sort(cuts);
    std::vector<IoTicket> tickets;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const auto part = memory.span().subspan(cuts[i], cuts[i + 1] - cuts[i]);
      tickets.push_back(
          engine->submit(IoDirection::write, file, cuts[i], HostLease::borrowed(part), part.size()));
    }
    std::ranges::shuffle(tickets, random);
    for (IoTicket& ticket : tickets) EXPECT_TRUE(ticket.wait().ok());
    ASSERT_EQ(file.size_bytes(), 30'000u);
    ASSERT_TRUE(std::ranges::equal(contents(), memory.span()));
  }
}

TEST_P(Unaligned, a_write_beyond_that_fails_or_is_empty_leaves_the_end_of_the_one_that_did_not) {
  const auto engine = make({.queue_depth = 8});
  const ShiftedMemory memory(4096, 0), large(100'000, 0);
  plan_->add({.direction = IoDirection::write, .begin = 200'000, .code = EIO});
  for (int round = 0; round < 10; ++round) {
    const IoFile file = create();
    IoTicket first = engine->submit(IoDirection::write, file, 0, large.lease(), 100'000);
    IoTicket failing = engine->submit(IoDirection::write, file, 204'800, memory.lease(), 4096);
    IoTicket empty = engine->submit(IoDirection::write, file, 409'600, memory.lease(), 0);
    expect_whole(empty.wait(), 0);
    EXPECT_EQ(failing.wait().code, EIO);
    expect_whole(first.wait(), 100'000);
    ASSERT_EQ(file.size_bytes(), 100'000u);
  }
}

TEST_P(Unaligned, the_end_is_right_after_each_append_while_others_read_without_a_pause) {
  const auto engine = make({.queue_depth = 8, .request_bytes = 4096});
  const IoFile file = create();
  const ShiftedMemory whole(64_KiB, 0);
  expect_whole(move(*engine, IoDirection::write, file, 0, whole), 64_KiB);
  std::atomic<bool> stop{false};
  std::jthread reader([&] {
    const ShiftedMemory memory(80_KiB, 0);
    std::vector<IoTicket> tickets(4);  // and one that takes another's place
    for (std::size_t i = 0; !stop; ++i)
      tickets[i % 4] =
          engine->submit(IoDirection::read, file, 0,
                         HostLease::borrowed(memory.span().subspan(i % 5 * 16_KiB, 16_KiB)), 16_KiB);
  });
  std::mt19937 random(12);
  Bytes size = 64_KiB;
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    const ShiftedMemory memory(1 + random() % 9000, 7);
    expect_whole(move(*engine, IoDirection::write, file, size, memory), memory.span().size());
    size += memory.span().size();
    EXPECT_EQ(file.size_bytes(), size);
  }
  stop = true;
}

TEST_P(Unaligned, reading_past_an_odd_end_says_how_much_there_was) {
  const auto engine = make();
  const IoFile file = create();
  std::mt19937 random(2);
  const ShiftedMemory written(5001, 0), read(9000, 3);
  fill_random(written.span(), random);
  expect_whole(move(*engine, IoDirection::write, file, 0, written), 5001);
  const IoResult result = move(*engine, IoDirection::read, file, 1, read);
  EXPECT_EQ(result.code, EIO);
  EXPECT_EQ(result.bytes, 5000u);
  EXPECT_TRUE(std::ranges::equal(read.span().first(5000), written.span().subspan(1)));
  expect_whole(move(*engine, IoDirection::read, file, 4990, ShiftedMemory(11, 0)), 11);
  EXPECT_EQ(move(*engine, IoDirection::read, file, 5001, ShiftedMemory(1, 0)).code, EIO);
}

// A block that cannot be read is not rewritten with zeros around the new bytes.
TEST_P(Unaligned, a_write_into_a_block_that_cannot_be_read_fails_and_changes_nothing) {
  const auto engine = make();
  const IoFile file = create();
  std::mt19937 random(3);
  const ShiftedMemory old(8192, 0);
  fill_random(old.span(), random);
  expect_whole(move(*engine, IoDirection::write, file, 0, old), 8192);
  plan_->add({.direction = IoDirection::read, .count = 1, .code = EIO});
  EXPECT_EQ(move(*engine, IoDirection::write, file, 100, ShiftedMemory(50, 0)).code, EIO);
  EXPECT_TRUE(std::ranges::equal(contents(), old.span()));
  expect_whole(move(*engine, IoDirection::write, file, 100, ShiftedMemory(50, 0)), 50);
}

TEST_P(Unaligned, failures_of_each_part_are_the_transfers_and_free_the_block) {
  const auto engine = make({.request_bytes = 4096});
  const IoFile file = create();
  const ShiftedMemory memory(20'000, 100);
  for (const IoDirection failing : {IoDirection::read, IoDirection::write}) {
    for (std::uint64_t request = 0; request < 2; ++request) {
      plan_->add({.direction = failing, .first = request, .count = 1, .code = ENOSPC});
      EXPECT_EQ(move(*engine, IoDirection::write, file, 100, memory).code, ENOSPC);
      plan_->clear();
      expect_whole(move(*engine, IoDirection::write, file, 100, memory), 20'000);
    }
  }
}

TEST_P(Unaligned, short_and_interrupted_requests_change_no_byte) {
  plan_->add({.first = 1, .every = 3, .code = EINTR});
  plan_->add({.every = 2, .moved_bytes = 4096});
  const auto engine = make({.queue_depth = 4, .request_bytes = 64_KiB});
  const IoFile file = create();
  std::mt19937 random(5);
  for (const Bytes shift : {Bytes{100}, Bytes{101}}) {
    const ShiftedMemory written(300'000, shift), read(300'000, shift);
    fill_random(written.span(), random);
    expect_whole(move(*engine, IoDirection::write, file, 100, written), 300'000);
    expect_whole(move(*engine, IoDirection::read, file, 100, read), 300'000);
    EXPECT_TRUE(std::ranges::equal(written.span(), read.span()));
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Unaligned, hooked_engines(),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace headrace::testing
