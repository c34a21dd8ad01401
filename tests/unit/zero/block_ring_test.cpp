// Buffers between NVMe and a lane alone: what is in flight at once, who waits for what, and what becomes of
// failures, over disks that hold transfers back, are late or fail.
#include "src/zero/block_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

#include "headrace/errors.h"
#include "tests/support/bounded_wait.h"
#include "tests/support/delaying_io_engine.h"
#include "tests/support/engine_harness.h"
#include "tests/support/fault_io_engine.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;
using Use = BlockRing::Use;

// A disk that takes transfers up and ends those of one direction only when it is told to.
class Held {
 public:
  void hold(IoDirection direction) { gates_[static_cast<int>(direction)] = std::make_shared<test::Gate>(); }
  void let_go(IoDirection direction) { gates_[static_cast<int>(direction)]->open(); }
  std::uint64_t submitted(IoDirection direction) const { return submitted_[static_cast<int>(direction)]; }

 private:
  friend class HoldingEngine;
  std::shared_ptr<test::Gate> gates_[2];
  std::atomic<std::uint64_t> submitted_[2] = {};
};

class HoldingEngine final : public IoEngine {
 public:
  explicit HoldingEngine(Held& held) : held_(held) {}
  std::string_view name() const override { return "holding"; }
  IoCounters counters() const override { return inner_->counters(); }
  IoTicket submit(IoDirection direction, const IoFile& file, std::uint64_t offset, HostLease buffer,
                  Bytes bytes) override {
    IoTicket ticket = inner_->submit(direction, file, offset, std::move(buffer), bytes);
    ++held_.submitted_[static_cast<int>(direction)];
    return IoTicket(std::make_unique<Ticket>(std::move(ticket), held_.gates_[static_cast<int>(direction)]));
  }

 private:
  class Ticket final : public IoTicket::State {
   public:
    Ticket(IoTicket inner, std::shared_ptr<test::Gate> gate)
        : inner_(std::move(inner)), gate_(std::move(gate)) {}
    IoResult wait() override {
      if (gate_) gate_->hold();
      return inner_.wait();
    }
    bool done() override { return false; }
    HostLease take() override { return inner_.take(); }

   private:
    IoTicket inner_;
    std::shared_ptr<test::Gate> gate_;
  };

  Held& held_;
  std::unique_ptr<IoEngine> inner_ = make_thread_engine({});
};

constexpr std::uint64_t block_numel = 4096;
constexpr std::uint32_t blocks = 12;

// A scratch store of `blocks` blocks of gradients on the disk of `io`.
struct Disk {
  explicit Disk(std::unique_ptr<IoEngine> io_in) : io(std::move(io_in)) {
    context.units.push_back(
        plan_unit(make_unit_layout(
                      {"unit", {{.name = "w", .shape = {static_cast<std::int64_t>(blocks * block_numel)}}}}),
                  context.placement, context.options, 0, 1));
    store = std::make_unique<ScratchStore>(
        context, optimizer_blocks(context.units, context.placement, context.options));
    store->create({});
  }
  static EngineOptions options(const TemporaryFolder& folder) {
    EngineOptions options;
    options.stage = 2;
    options.gradient_tier = Tier::nvme;
    options.optimizer_tier = Tier::host;
    options.dtype = DType::f32;
    options.swap_block_bytes = 12 * block_numel;
    options.swap_directories = {folder.path()};
    return options;
  }

  TemporaryFolder folder;
  std::unique_ptr<IoEngine> io;
  std::unique_ptr<Device> device = make_cpu_device({.memory_bytes = 1 << 20, .compute_threads = 1});
  std::unique_ptr<DeviceKernels> kernels = make_cpu_kernels(*device);
  std::unique_ptr<Communicator> communicator = make_single_communicator(*device);
  EngineContext context{*device, *kernels, *communicator, io.get(), options(folder)};
  std::unique_ptr<ScratchStore> store;
};

class Ring : public BlockRing {
 public:
  Ring(Disk& disk, std::uint32_t count)
      : BlockRing(disk.context, *disk.store, disk.store->buffer_bytes(ScratchKind::gradients), count) {}
};

float& value_in(const BlockRing::Handle& passage) {
  return *reinterpret_cast<float*>(BlockRing::memory(passage));
}

// By the owner as the consumer.
void put(BlockRing& ring, BlockRing::Index block, float value) {
  const BlockRing::Handle passage = ring.ask(block, Use::overwrite);
  ring.await(passage);
  value_in(passage) = value;
  ring.write(passage);
}

float get(BlockRing& ring, BlockRing::Index block) {
  const BlockRing::Handle passage = ring.ask(block, Use::read);
  ring.await(passage);
  const float value = value_in(passage);
  ring.release(passage);
  return value;
}

void put_all(BlockRing& ring) {
  for (std::uint32_t b = 0; b < blocks; ++b) put(ring, b, static_cast<float>(b));
  ring.flush();
}

TEST(BlockRing, has_as_many_writes_in_flight_as_there_are_buffers) {
  Held held;
  Disk disk(std::make_unique<HoldingEngine>(held));
  Ring ring(disk, 4);
  const std::uint64_t before = held.submitted(IoDirection::write);
  held.hold(IoDirection::write);
  std::atomic<std::uint32_t> had_buffer{0};
  for (std::uint32_t b = 0; b < 8; ++b) {  // the owner is far ahead of the lane
    const BlockRing::Handle passage = ring.ask(b, Use::overwrite);
    ring.enqueue_await(Lane::download, passage);
    disk.device->enqueue(Lane::download, "fill", [&, passage, b] {
      value_in(passage) = static_cast<float>(b);
      ++had_buffer;
    });
    ring.enqueue_write(Lane::download, passage);
  }
  EXPECT_TRUE(test::eventually([&] { return held.submitted(IoDirection::write) == before + 4; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(had_buffer, 4u) << "the fifth overwrites the first one's buffer";
  held.let_go(IoDirection::write);
  disk.device->synchronize();
  ring.flush();
  for (std::uint32_t b = 0; b < 8; ++b) EXPECT_EQ(get(ring, b), static_cast<float>(b));
}

// A late disk and writes that take a while: with one at a time 8 of them would take 8 delays.
TEST(BlockRing, writes_behind_the_lane_that_fills_its_buffers) {
  constexpr auto delay = std::chrono::milliseconds(40);
  Disk disk(make_delaying_engine(make_thread_engine({}), {.read = {}, .write = {.fixed = delay}}));
  Ring ring(disk, 8);
  const auto start = std::chrono::steady_clock::now();
  for (std::uint32_t b = 0; b < 8; ++b) {
    const BlockRing::Handle passage = ring.ask(b, Use::overwrite);
    ring.enqueue_await(Lane::download, passage);
    ring.enqueue_write(Lane::download, passage);
  }
  for (std::uint32_t b = 8; b < 12; ++b) ring.ask(b, Use::overwrite);  // wait for the first four's buffers
  disk.device->synchronize();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 4 * delay);
  EXPECT_LT(ring.waited_seconds(Lane::download), 4 * std::chrono::duration<double>(delay).count());
  ring.flush();
  EXPECT_GE(disk.context.nvme_waits.seconds(), 2 * std::chrono::duration<double>(delay).count());
}

// Neither the owner that asks nor the lane that awaits another block stands still for a write.
TEST(BlockRing, reads_what_is_being_written_when_that_ends_and_holds_up_nobody) {
  Held held;
  Disk disk(std::make_unique<HoldingEngine>(held));
  Ring ring(disk, 2);
  put_all(ring);
  held.hold(IoDirection::write);
  const BlockRing::Handle first = ring.ask(0, Use::read_and_write), second = ring.ask(1, Use::read);
  const BlockRing::Handle again = ring.ask(0, Use::read);  // the same block, in the same buffer
  ring.await(first);
  value_in(first) = 7;
  const std::uint64_t reads = held.submitted(IoDirection::read);
  ring.write(first);
  ring.await(second);
  EXPECT_EQ(value_in(second), 1);
  ring.release(second);
  const BlockRing::Handle other = ring.ask(2, Use::read);
  ring.await(other);
  EXPECT_EQ(value_in(other), 2);
  ring.release(other);
  EXPECT_EQ(held.submitted(IoDirection::read), reads + 1) << "the block was read while it was written";
  held.let_go(IoDirection::write);
  ring.await(again);
  EXPECT_EQ(value_in(again), 7);
  ring.release(again);
}

// The buffer is still being written from: who comes next waits for that, not for the one in between.
TEST(BlockRing, an_overwrite_that_was_dropped_leaves_its_wait_to_the_next) {
  Held held;
  Disk disk(std::make_unique<HoldingEngine>(held));
  Ring ring(disk, 1);
  put_all(ring);
  held.hold(IoDirection::write);
  put(ring, 3, 30);
  ring.drop(ring.ask(4, Use::overwrite));
  const BlockRing::Handle next = ring.ask(5, Use::overwrite);
  std::atomic<bool> has_buffer{false};
  ring.enqueue_await(Lane::download, next);
  disk.device->enqueue(Lane::download, "fill", [&] {
    value_in(next) = 50;
    has_buffer = true;
  });
  ring.enqueue_write(Lane::download, next);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(has_buffer);
  held.let_go(IoDirection::write);
  disk.device->synchronize();
  ring.flush();
  EXPECT_EQ(get(ring, 3), 30);
  EXPECT_EQ(get(ring, 4), 4);
  EXPECT_EQ(get(ring, 5), 50);
}

TEST(BlockRing, a_read_that_waits_for_a_write_can_be_dropped_at_once) {
  Held held;
  Disk disk(std::make_unique<HoldingEngine>(held));
  Ring ring(disk, 1);
  put_all(ring);
  held.hold(IoDirection::write);
  put(ring, 3, 30);
  const BlockRing::Handle taken = ring.ask(3, Use::read);   // the ring's thread waits for the write
  const BlockRing::Handle behind = ring.ask(4, Use::read);  // queued behind it
  ring.drop(behind);
  held.let_go(IoDirection::write);
  ring.drop(taken);
  EXPECT_EQ(get(ring, 3), 30);
  EXPECT_EQ(get(ring, 4), 4);
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const IoError& error) {
    return error.what();
  }
  return {};
}

TEST(BlockRing, a_read_ahead_that_failed_and_is_not_wanted_stops_nothing) {
  const auto plan = std::make_shared<FaultPlan>();
  Disk disk(make_fault_engine(make_thread_engine({}), plan));
  Ring ring(disk, 1);
  put_all(ring);
  plan->add({.direction = IoDirection::read, .count = 2, .code = EIO});
  ring.drop(ring.ask(3, Use::read));
  EXPECT_EQ(plan->hits(), 1u);
  EXPECT_THAT(message_of([&] { get(ring, 4); }), HasSubstr("gradients of unit[16384:20480]"));
  EXPECT_EQ(plan->hits(), 2u);
}

TEST(BlockRing, a_read_that_failed_is_thrown_to_its_consumer_alone) {
  const auto plan = std::make_shared<FaultPlan>();
  Disk disk(make_fault_engine(make_thread_engine({}), plan));
  Ring ring(disk, 2);
  put_all(ring);
  plan->add({.direction = IoDirection::read, .count = 1, .code = EIO});
  const BlockRing::Handle failing = ring.ask(1, Use::read);
  EXPECT_THROW(ring.await(failing), IoError);
  ring.release(failing);
  for (std::uint32_t b = 0; b < blocks; ++b) EXPECT_EQ(get(ring, b), static_cast<float>(b));
  EXPECT_NO_THROW(ring.flush());
}

// The only one who waited for the write was dropped.
TEST(BlockRing, a_write_that_failed_is_thrown_by_every_later_await_and_flush) {
  for (const bool read_is_dropped : {false, true}) {
    const auto plan = std::make_shared<FaultPlan>();
    Disk disk(make_fault_engine(make_thread_engine({}), plan));
    Ring ring(disk, 2);
    put_all(ring);
    plan->add({.direction = IoDirection::write, .count = 1, .code = ENOSPC});
    put(ring, 3, 30);
    put(ring, 4, 40);
    if (read_is_dropped) {
      const BlockRing::Handle next = ring.ask(5, Use::read);  // in the buffer of block 3
      EXPECT_THROW(get(ring, 6), IoError);
      ring.drop(next);
    }
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(message_of([&] { ring.flush(); }), HasSubstr("gradients of unit[12288:16384]"));
      EXPECT_THAT(message_of([&] { get(ring, 6); }), HasSubstr("gradients of unit[12288:16384]"));
    }
  }
}

// Sums as micro-batches make them, in a lane far behind the owner, with wrong forecasts, over a late disk.
TEST(BlockRing, loses_no_addition_whatever_was_foreseen) {
  constexpr int rounds = 6;
  for (const std::uint32_t buffers : {1u, 2u, 3u, 5u}) {
    Disk disk(
        make_delaying_engine(make_thread_engine({}), {.read = {.fixed = std::chrono::microseconds(150)},
                                                      .write = {.fixed = std::chrono::microseconds(300)}}));
    Ring ring(disk, buffers);
    put_all(ring);
    BlockReader reader(ring, Use::read_and_write, std::max(1u, buffers / 2));
    std::mt19937 random(buffers);
    for (int round = 0; round < rounds; ++round) {
      std::vector<BlockRing::Index> order(blocks);
      std::iota(order.begin(), order.end(), 0u);
      std::shuffle(order.begin(), order.end(), random);
      for (std::size_t i = 0; i < order.size(); ++i) {
        if (random() % 4 == 0)
          reader.expect(std::vector<BlockRing::Index>{static_cast<BlockRing::Index>(random() % blocks)});
        else
          reader.expect(std::span(order).subspan(i));
        const BlockRing::Handle passage = reader.take(order[i]);
        ring.enqueue_await(Lane::download, passage);
        disk.device->enqueue(Lane::download, "add", [passage] { value_in(passage) += 100; });
        ring.enqueue_write(Lane::download, passage);
      }
    }
    reader.drop_all();
    disk.device->synchronize();
    ring.flush();
    for (std::uint32_t b = 0; b < blocks; ++b)
      EXPECT_EQ(get(ring, b), static_cast<float>(b + 100 * rounds)) << buffers << " buffers, block " << b;
  }
}

}  // namespace
}  // namespace headrace::testing
