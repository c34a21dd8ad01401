// One suite for every IoEngine: what the seam promises, whoever implements it.
#include <sys/mman.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "headrace/elapsed.h"
#include "tests/support/bounded_wait.h"
#include "tests/support/broken_io_engine.h"
#include "tests/support/delaying_io_engine.h"
#include "tests/support/fault_io_engine.h"
#include "tests/unit/aio/io_fixture.h"

namespace headrace::testing {
namespace {

using namespace headrace::literals;

struct Implementation {
  const char* name;
  std::function<std::unique_ptr<IoEngine>(const IoEngineOptions&)> make;
  bool wraps = false;
};

void PrintTo(const Implementation& implementation, std::ostream* out) {
  *out << implementation.name;
}

std::unique_ptr<IoEngine> make_wrapped(const IoEngineOptions& options) {
  return make_fault_engine(make_uring_engine(options), std::make_shared<FaultPlan>());
}
std::unique_ptr<IoEngine> make_delayed(const IoEngineOptions& options) {
  return make_delaying_engine(make_thread_engine(options),
                              {.read = {.fixed = std::chrono::microseconds(20)}});
}

// Where the device has no poll queues, completions come by interrupt all the same.
std::unique_ptr<IoEngine> make_polling_engine(const IoEngineOptions& options) {
  IoEngineOptions polling = options;
  polling.poll_completions = polling.poll_submissions = true;
  return make_uring_engine(polling);
}

// None but where a test shows that this suite can fail [contract_can_fail_test.cpp].
std::vector<Implementation> broken_engines() {
  const char* name = std::getenv("HEADRACE_TEST_DEFECT");
  const auto defect = name != nullptr ? defect_named(name) : std::nullopt;
  if (!defect) return {};
  return {
      {"broken", [defect](const IoEngineOptions& options) { return make_broken_engine(*defect, options); }}};
}

class IoEngineContract : public ::testing::TestWithParam<Implementation> {
 protected:
  std::unique_ptr<IoEngine> make(const IoEngineOptions& options = {}) const {
    return GetParam().make(options);
  }
  IoFile create(const std::string& name) const {
    return IoFile::open(folder_.file(name), IoFile::Mode::create);
  }

  void expect_round_trip(IoEngine& engine, const IoFile& file, std::uint64_t offset, Bytes bytes) {
    AlignedMemory written(bytes), read(bytes);
    written.fill(offset + bytes);
    expect_whole(transfer(engine, IoDirection::write, file, offset, written), bytes);
    expect_whole(transfer(engine, IoDirection::read, file, offset, read), bytes);
    EXPECT_TRUE(written == read) << bytes << " bytes at " << offset;
  }

  IoFolder folder_;
};

TEST_P(IoEngineContract, what_was_written_is_read_back) {
  const auto engine = make({.queue_depth = 4, .request_bytes = 64_KiB});
  const IoFile file = create("data");
  for (const Bytes bytes : {Bytes{4096}, 64_KiB, 64_KiB + 4096, 1_MiB + 4096})
    for (const std::uint64_t offset : {Bytes{0}, Bytes{4096}, 3_MiB})
      expect_round_trip(*engine, file, offset, bytes);
}

TEST_P(IoEngineContract, a_buffered_file_takes_any_offset_and_length) {
  const auto engine = make({.queue_depth = 4, .request_bytes = 1000});
  const IoFile file = IoFile::open(folder_.file("data"), IoFile::Mode::create, false);
  for (const Bytes bytes : {1, 511, 512, 513, 4095, 4097}) expect_round_trip(*engine, file, 7, bytes);
}

TEST_P(IoEngineContract, a_sector_is_enough_where_the_file_allows_it) {
  const IoFile file = create("data");
  if (file.offset_alignment() > 512) GTEST_SKIP() << "this file's blocks are larger";
  expect_round_trip(*make(), file, 512, 512);
}

TEST_P(IoEngineContract, a_transfer_of_zero_bytes_is_done_at_once) {
  const auto engine = make();
  const IoFile file = create("data");
  auto ticket = engine->submit(IoDirection::read, file, 4096, HostLease(), 0);
  expect_whole(ticket.wait(), 0);
  EXPECT_TRUE(ticket.done());
}

TEST_P(IoEngineContract, offsets_beyond_4_gib_reach_their_own_place) {
  const auto engine = make();
  const IoFile file = create("sparse");
  AlignedMemory low(4096), high(4096), read(4096);
  low.fill(1), high.fill(2);
  expect_whole(transfer(*engine, IoDirection::write, file, 4096, low), 4096);
  expect_whole(transfer(*engine, IoDirection::write, file, 5_GiB + 4096, high), 4096);
  EXPECT_EQ(file.size_bytes(), 5_GiB + 8192);
  expect_whole(transfer(*engine, IoDirection::read, file, 4096, read), 4096);
  EXPECT_TRUE(read == low);
  expect_whole(transfer(*engine, IoDirection::read, file, 5_GiB + 4096, read), 4096);
  EXPECT_TRUE(read == high);
}

TEST_P(IoEngineContract, bytes_outside_the_transfer_are_not_touched) {
  const auto engine = make({.queue_depth = 4, .request_bytes = 4096});
  const IoFile file = create("data");
  AlignedMemory all(32_KiB), middle(8192), read(32_KiB), expected(32_KiB);
  all.fill(1), middle.fill(2), expected.fill(1);
  std::ranges::copy(middle.span(), expected.span().begin() + 12288);
  expect_whole(transfer(*engine, IoDirection::write, file, 0, all), 32_KiB);
  expect_whole(transfer(*engine, IoDirection::write, file, 12288, middle), 8192);
  expect_whole(transfer(*engine, IoDirection::read, file, 0, read), 32_KiB);
  EXPECT_TRUE(read == expected);

  AlignedMemory larger(12288), untouched(12288);
  larger.fill(3), untouched.fill(3);
  expect_whole(engine->submit(IoDirection::read, file, 0, larger.lease(), 4096).wait(), 4096);
  EXPECT_TRUE(std::ranges::equal(larger.span().subspan(4096), untouched.span().subspan(4096)));
}

TEST_P(IoEngineContract, reading_past_the_end_is_an_error_that_says_how_much_there_was) {
  const auto engine = make({.queue_depth = 4, .request_bytes = 4096});
  const IoFile file = create("data");
  AlignedMemory written(8192), read(16384);
  written.fill(1);
  expect_whole(transfer(*engine, IoDirection::write, file, 0, written), 8192);
  const IoResult past = transfer(*engine, IoDirection::read, file, 0, read);
  EXPECT_EQ(past.code, EIO);
  EXPECT_EQ(past.bytes, 8192u);
  const IoResult beyond = transfer(*engine, IoDirection::read, file, 1_MiB, read);
  EXPECT_EQ(beyond.code, EIO);
  EXPECT_EQ(beyond.bytes, 0u);
}

TEST_P(IoEngineContract, a_file_that_ends_inside_a_block_is_read_up_to_its_end) {
  const auto engine = make();
  const std::string path = folder_.file("odd");
  AlignedMemory written(5000), read(8192);
  written.fill(1);
  expect_whole(
      transfer(*engine, IoDirection::write, IoFile::open(path, IoFile::Mode::create, false), 0, written),
      5000);
  const IoResult result =
      transfer(*engine, IoDirection::read, IoFile::open(path, IoFile::Mode::read_only), 0, read);
  EXPECT_EQ(result.code, EIO);
  EXPECT_EQ(result.bytes, 5000u);
  EXPECT_TRUE(std::ranges::equal(read.span().first(5000), written.span()));
}

TEST_P(IoEngineContract, the_kernels_refusal_is_a_result_not_an_exception) {
  const auto engine = make();
  create("data");
  const IoFile file = IoFile::open(folder_.file("data"), IoFile::Mode::read_only);
  const AlignedMemory memory(4096);
  const IoResult result = transfer(*engine, IoDirection::write, file, 0, memory);
  EXPECT_EQ(result.code, EBADF);
  EXPECT_EQ(result.bytes, 0u);
  EXPECT_EQ(engine->counters().written_bytes, 0u);
}

TEST_P(IoEngineContract, tickets_are_waited_for_in_any_order_and_on_any_thread) {
  const auto engine = make({.queue_depth = 3, .request_bytes = 16_KiB});
  const IoFile file = create("data");
  constexpr std::size_t count = 40;
  std::vector<AlignedMemory> memory;
  for (std::size_t i = 0; i < count; ++i) memory.emplace_back(64_KiB).fill(i);
  std::vector<IoTicket> tickets;
  for (std::size_t i = 0; i < count; ++i)
    tickets.push_back(engine->submit(IoDirection::write, file, i * 64_KiB, memory[i].lease(), 64_KiB));
  std::ranges::shuffle(tickets, std::mt19937(5));
  std::thread other([half = std::vector(std::make_move_iterator(tickets.begin() + count / 2),
                                        std::make_move_iterator(tickets.end()))]() mutable {
    for (IoTicket& ticket : half) expect_whole(ticket.wait(), 64_KiB);
  });
  for (std::size_t i = 0; i < count / 2; ++i) expect_whole(tickets[i].wait(), 64_KiB);
  other.join();
  AlignedMemory read(64_KiB);
  for (std::size_t i = 0; i < count; ++i) {
    expect_whole(transfer(*engine, IoDirection::read, file, i * 64_KiB, read), 64_KiB);
    EXPECT_TRUE(read == memory[i]) << i;
  }
}

TEST_P(IoEngineContract, threads_submit_at_the_same_time_and_may_end_before_their_transfers) {
  const auto engine = make({.queue_depth = 4, .request_bytes = 8192});
  const IoFile file = create("data");
  constexpr std::size_t threads = 6, each = 20;
  std::vector<AlignedMemory> memory;
  for (std::size_t i = 0; i < threads * each; ++i) memory.emplace_back(16_KiB).fill(i);
  std::vector<IoTicket> tickets(threads * each);
  {
    std::vector<std::jthread> submitters;
    for (std::size_t t = 0; t < threads; ++t)
      submitters.emplace_back([&, t] {
        for (std::size_t i = t * each; i < (t + 1) * each; ++i)
          tickets[i] = engine->submit(IoDirection::write, file, i * 16_KiB, memory[i].lease(), 16_KiB);
      });
  }
  for (IoTicket& ticket : tickets) expect_whole(ticket.wait(), 16_KiB);
  AlignedMemory read(16_KiB);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    expect_whole(transfer(*engine, IoDirection::read, file, i * 16_KiB, read), 16_KiB);
    EXPECT_TRUE(read == memory[i]) << i;
  }
}

TEST_P(IoEngineContract, wait_may_be_repeated_and_take_returns_the_buffer_that_was_given) {
  const auto engine = make();
  const IoFile file = create("data");
  CountingOwner owner;
  const AlignedMemory memory(4096);
  IoTicket ticket = engine->submit(IoDirection::write, file, 0, HostLease(&owner, memory.span()), 4096);
  expect_whole(ticket.wait(), 4096);
  expect_whole(ticket.wait(), 4096);
  EXPECT_TRUE(ticket.done());
  {
    const HostLease buffer = ticket.take();
    EXPECT_EQ(buffer.data(), memory.span().data());
    EXPECT_EQ(owner.returned, 0);
  }
  EXPECT_EQ(owner.returned, 1);
}

// A pool may be destroyed as soon as its tickets are gone: the buffer is back when the destructor returns,
// not later.
TEST_P(IoEngineContract, a_dropped_ticket_waits_and_gives_its_buffer_back) {
  const auto engine = make({.queue_depth = 1, .request_bytes = 4096});
  const IoFile file = create("data");
  AlignedMemory memory(256_KiB), read(256_KiB);
  memory.fill(9);
  for (int round = 0; round < 20; ++round) {
    CountingOwner owner;
    { (void)engine->submit(IoDirection::write, file, 0, HostLease(&owner, memory.span()), 256_KiB); }
    ASSERT_EQ(owner.returned, 1);
    IoTicket replaced =
        engine->submit(IoDirection::write, file, 0, HostLease(&owner, memory.span()), 256_KiB);
    replaced = IoTicket();
    ASSERT_EQ(owner.returned, 2);
  }
  expect_whole(transfer(*engine, IoDirection::read, file, 0, read), 256_KiB);
  EXPECT_TRUE(read == memory);
}

TEST_P(IoEngineContract, more_transfers_than_the_queue_depth_all_end) {
  const auto engine = make({.queue_depth = 1, .request_bytes = 4096});
  const IoFile file = create("data");
  AlignedMemory memory(64_KiB);
  memory.fill(1);
  std::vector<IoTicket> tickets;
  for (std::uint64_t i = 0; i < 30; ++i)
    tickets.push_back(engine->submit(IoDirection::write, file, i * 64_KiB, memory.lease(), 64_KiB));
  for (IoTicket& ticket : tickets) expect_whole(ticket.wait(), 64_KiB);
  EXPECT_EQ(file.size_bytes(), 30 * 64_KiB);
}

TEST_P(IoEngineContract, a_submit_beyond_the_buffer_or_any_file_is_the_callers_mistake) {
  const auto engine = make();
  const IoFile file = create("data");
  const AlignedMemory memory(16_KiB);
  CountingOwner owner;
  const auto submit = [&](std::uint64_t offset, Bytes bytes) {
    (void)engine->submit(IoDirection::write, file, offset, HostLease(&owner, memory.span()), bytes);
  };
  EXPECT_THROW(submit(0, 32_KiB), std::logic_error);
  EXPECT_THROW(submit(~std::uint64_t{4095}, 4096), std::logic_error);
  EXPECT_EQ(owner.returned, 2);
  EXPECT_EQ(file.size_bytes(), 0u);
}

TEST_P(IoEngineContract, counters_are_the_bytes_of_each_direction) {
  const auto engine = make({.queue_depth = 4, .request_bytes = 4096});
  const IoFile file = create("data");
  const AlignedMemory memory(64_KiB), part(12288);
  expect_whole(transfer(*engine, IoDirection::write, file, 0, memory), 64_KiB);
  expect_whole(transfer(*engine, IoDirection::read, file, 0, part), 12288);
  EXPECT_EQ(engine->counters().written_bytes, 64_KiB);
  EXPECT_EQ(engine->counters().read_bytes, 12288u);
}

TEST_P(IoEngineContract, seconds_of_waiting_are_those_that_callers_were_blocked) {
  const auto engine = make({.queue_depth = 2, .request_bytes = 64_KiB});
  const IoFile file = create("data");
  const AlignedMemory memory(4_MiB);
  std::vector<IoTicket> tickets;
  for (std::uint64_t i = 0; i < 8; ++i)
    tickets.push_back(engine->submit(IoDirection::write, file, i * 4_MiB, memory.lease(), 4_MiB));
  EXPECT_EQ(engine->counters().wait_seconds, 0.0);
  const auto start = std::chrono::steady_clock::now();
  for (IoTicket& ticket : tickets) expect_whole(ticket.wait(), 4_MiB);
  const double most = seconds_since(start), waited = engine->counters().wait_seconds;
  EXPECT_GT(waited, 0.0);
  EXPECT_LE(waited, most);
  for (IoTicket& ticket : tickets) expect_whole(ticket.wait(), 4_MiB);  // they are over
  EXPECT_EQ(engine->counters().wait_seconds, waited);
}

// The buffer is one file mapped again and again: 2.06 GiB of addresses, 64 MiB of memory.
TEST_P(IoEngineContract, a_transfer_of_more_than_2_gib_is_whole) {
  if (GetParam().wraps) GTEST_SKIP() << "the engine inside has its own turn";
  constexpr Bytes part = 64_MiB, bytes = 33 * part;
  const Fd shared(::memfd_create("part", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(shared.get(), static_cast<off_t>(part)), 0);
  auto* base = static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(base, MAP_FAILED);
  for (Bytes at = 0; at < bytes; at += part)
    ASSERT_NE(::mmap(base + at, part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, shared.get(), 0),
              MAP_FAILED);
  // The last page alone is its own.
  ASSERT_NE(::mmap(base + bytes - 4096, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                   -1, 0),
            MAP_FAILED);

  const IoFile file = create("sparse");
  const auto engine = make({.queue_depth = 4, .request_bytes = 4_GiB});
  AlignedMemory last(4096);
  last.fill(6);
  expect_whole(transfer(*engine, IoDirection::write, file, bytes - 4096, last), 4096);
  expect_whole(engine->submit(IoDirection::read, file, 0, HostLease::borrowed({base, bytes}), bytes).wait(),
               bytes);
  EXPECT_EQ(engine->counters().read_bytes, bytes);
  EXPECT_EQ(std::memcmp(base + bytes - 4096, last.span().data(), 4096), 0);
  ::munmap(base, bytes);
}

TEST_P(IoEngineContract, impossible_options_are_refused_by_name) {
  EXPECT_THROW(make({.queue_depth = 1u << 20}), UsageError);
}

TEST_P(IoEngineContract, a_signal_every_millisecond_disturbs_nothing) {
  static std::atomic<int> alarms;
  struct sigaction action {
  }, old_action{};
  action.sa_handler = [](int) { ++alarms; };  // without SA_RESTART
  sigaction(SIGALRM, &action, &old_action);
  const itimerval every_millisecond{{0, 1000}, {0, 1000}}, never{};
  alarms = 0;
  setitimer(ITIMER_REAL, &every_millisecond, nullptr);
  {
    const auto engine = make({.queue_depth = 4, .request_bytes = 64_KiB});
    const IoFile file = create("data");
    std::uint64_t i = 0;
    EXPECT_TRUE(test::eventually([&] {
      expect_round_trip(*engine, file, i++ % 8 * 1_MiB, 1_MiB);
      return alarms >= 100;
    }));
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &old_action, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Engines, IoEngineContract,
                         ::testing::Values(Implementation{"uring", make_uring_engine},
                                           Implementation{"threads", make_thread_engine},
                                           Implementation{"uring_polling", make_polling_engine, true},
                                           Implementation{"fault_wrapper", make_wrapped, true},
                                           Implementation{"delaying_wrapper", make_delayed, true}),
                         [](const auto& tested) { return tested.param.name; });
INSTANTIATE_TEST_SUITE_P(Broken, IoEngineContract, ::testing::ValuesIn(broken_engines()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace headrace::testing
