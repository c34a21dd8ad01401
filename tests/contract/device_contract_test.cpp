// What every Device promises, run over each implementation that the program names. Host code reaches device
// memory by copies alone; the work that it enqueues touches host memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "contract/device_under_test.h"
#include "headrace/device.h"
#include "headrace/errors.h"
#include "tests/support/bounded_wait.h"

namespace headrace {

static void PrintTo(const DeviceImplementation& implementation, std::ostream* out) {
  *out << implementation.name;
}

namespace {

using testing::HasSubstr;

constexpr Lane lanes[] = {Lane::compute, Lane::upload, Lane::download, Lane::communicate};
constexpr Bytes arena_bytes = Bytes{1} << 20;

class DeviceContract : public testing::TestWithParam<DeviceImplementation> {
 protected:
  std::unique_ptr<Device> device = GetParam().make(arena_bytes);
};
INSTANTIATE_TEST_SUITE_P(All, DeviceContract, testing::ValuesIn(device_implementations()),
                         [](const auto& test) { return test.param.name; });

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>((i * 31 + seed) & 0xff);
  return values;
}

TEST_P(DeviceContract, the_arena_has_the_capacity_asked_for_and_is_page_aligned) {
  EXPECT_EQ(device->info().memory_capacity_bytes, arena_bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(device->arena()) % 4096, 0u);
  EXPECT_GE(device->info().compute_threads, 1);
}

TEST_P(DeviceContract, bytes_come_back_as_they_went_whatever_their_number_and_alignment) {
  for (const Bytes bytes : {Bytes{0}, Bytes{1}, Bytes{63}, Bytes{4097}, arena_bytes - 3}) {
    const auto sent = pattern(bytes, 7);
    std::vector<std::byte> received(bytes);
    device->copy(Lane::upload, device->arena() + 3, sent.data(), bytes);
    device->wait(Lane::download, device->record(Lane::upload));
    device->copy(Lane::download, received.data(), device->arena() + 3, bytes);
    device->host_wait(device->record(Lane::download));
    EXPECT_EQ(received, sent) << bytes << " bytes";
  }
}

TEST_P(DeviceContract, fill_zero_clears_exactly_its_range) {
  const auto ones = std::vector<std::byte>(256, std::byte{0xff});
  std::vector<std::byte> received(256);
  device->copy(Lane::upload, device->arena(), ones.data(), 256);
  device->fill_zero(Lane::upload, device->arena() + 10, 100);
  device->fill_zero(Lane::upload, device->arena() + 200, 0);
  device->copy(Lane::upload, received.data(), device->arena(), 256);
  device->synchronize();
  for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(received[i] == std::byte{0}, i >= 10 && i < 110) << i;
}

TEST_P(DeviceContract, work_of_one_lane_runs_in_order) {
  for (const Lane lane : lanes) {
    std::vector<int> order;
    for (int i = 0; i < 50; ++i) device->enqueue(lane, "append", [&order, i] { order.push_back(i); });
    device->synchronize();
    std::vector<int> expected(50);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(order, expected) << name_of(lane);
  }
}

TEST_P(DeviceContract, lanes_do_not_wait_for_each_other_without_an_event) {
  test::Gate gate;
  device->enqueue(Lane::upload, "hold", [&] { gate.hold(); });
  for (const Lane lane : {Lane::compute, Lane::download, Lane::communicate}) {
    device->host_wait(device->record(lane));
    EXPECT_FALSE(gate.timed_out()) << name_of(lane) << " waited for upload";
  }
  gate.open();
  device->synchronize();
}

TEST_P(DeviceContract, a_wait_orders_every_pair_of_lanes) {
  for (const Lane first : lanes)
    for (const Lane second : lanes) {
      int value = 0, seen = 0;
      device->enqueue(first, "write", [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        value = 42;
      });
      device->wait(second, device->record(first));
      device->enqueue(second, "read", [&] { seen = value; });
      device->host_wait(device->record(second));
      EXPECT_EQ(seen, 42) << name_of(first) << " then " << name_of(second);
    }
}

TEST_P(DeviceContract, an_event_covers_all_work_before_it_and_none_after) {
  std::atomic<int> done{0};
  test::Gate gate;
  for (int i = 0; i < 10; ++i) device->enqueue(Lane::compute, "count", [&] { ++done; });
  const Event event = device->record(Lane::compute);
  device->enqueue(Lane::compute, "hold", [&] { gate.hold(); });
  device->host_wait(event);
  EXPECT_EQ(done, 10);
  EXPECT_FALSE(gate.timed_out()) << "the event waited for work after it";
  gate.open();
  device->synchronize();
}

TEST_P(DeviceContract, default_and_long_past_events_are_reached) {
  EXPECT_FALSE(Event());
  device->host_wait(Event());
  device->wait(Lane::compute, Event());
  const Event past = device->record(Lane::upload);
  device->synchronize();
  device->wait(Lane::compute, past);
  device->host_wait(past);
  device->synchronize();
}

TEST_P(DeviceContract, host_calls_do_not_block_while_lanes_are_busy) {
  test::Gate gate;
  std::vector<std::byte> host(100);
  device->pin(host);  // a copy of pageable memory may take it into a buffer first
  for (const Lane lane : lanes) device->enqueue(lane, "hold", [&] { gate.hold(); });
  for (const Lane lane : lanes) {
    std::byte* own = device->arena() + 128 * static_cast<std::size_t>(lane);  // lanes are not ordered
    device->copy(lane, own, host.data(), 100);
    device->fill_zero(lane, own, 100);
    device->wait(lane, device->record(lane));
  }
  EXPECT_FALSE(gate.timed_out()) << "a call waited for its lane";
  gate.open();
  device->synchronize();
  device->unpin(host);
}

// Host memory that a lane fills, as blocks from NVMe are, where pinning was refused: sizes below and above
// what a device may take over at once; filled in the copy's own lane, and in one that it waits for.
TEST_P(DeviceContract, a_copy_sees_what_earlier_work_wrote_to_its_pageable_source) {
  for (const Bytes bytes : {Bytes{100}, Bytes{64} << 10, Bytes{100} << 10})
    for (const Lane filling : {Lane::upload, Lane::download}) {
      const auto expected = pattern(bytes, 3);
      std::vector<std::byte> source(bytes), received(bytes);
      test::Gate gate;
      device->enqueue(filling, "fill", [&] {
        gate.hold();
        source = expected;
      });
      if (filling != Lane::upload) device->wait(Lane::upload, device->record(filling));
      device->copy(Lane::upload, device->arena(), source.data(), bytes);
      gate.open();
      device->copy(Lane::upload, received.data(), device->arena(), bytes);
      device->synchronize();
      EXPECT_EQ(received, expected) << bytes << " bytes filled by " << name_of(filling);
    }
}

TEST_P(DeviceContract, the_first_error_is_thrown_by_every_later_wait_with_lane_and_operation) {
  device->enqueue(Lane::download, "write block 7", [] { throw std::runtime_error("disk on fire"); });
  const Event event = device->record(Lane::download);
  for (int i = 0; i < 2; ++i) try {
      device->host_wait(event);
      ADD_FAILURE() << "did not throw";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("disk on fire"));
      EXPECT_THAT(error.what(), HasSubstr("write block 7"));
      EXPECT_THAT(error.what(), HasSubstr("download"));
    }
  EXPECT_THROW(device->synchronize(), Error);
}

TEST_P(DeviceContract, an_error_keeps_its_kind) {
  device->enqueue(Lane::compute, "allocate", [] { throw DoesNotFit("too large"); });
  EXPECT_THROW(device->synchronize(), DoesNotFit);
}

TEST_P(DeviceContract, an_io_error_keeps_path_offset_and_code) {
  device->enqueue(Lane::compute, "read", [] { throw IoError("read", "/swap/x", 4096, 512, EIO); });
  try {
    device->synchronize();
    FAIL() << "did not throw";
  } catch (const IoError& error) {
    EXPECT_EQ(error.path(), "/swap/x");
    EXPECT_EQ(error.offset(), 4096u);
    EXPECT_EQ(error.code(), EIO);
  }
}

TEST_P(DeviceContract, what_is_no_exception_class_is_an_error_too) {
  device->enqueue(Lane::compute, "odd", [] { throw 42; });
  EXPECT_THROW(device->synchronize(), Error);
}

TEST_P(DeviceContract, work_after_an_error_is_dropped_even_on_lanes_that_waited_for_it_and_nothing_hangs) {
  std::atomic<int> ran{0};
  device->enqueue(Lane::upload, "fail", [] { throw std::runtime_error("no"); });
  device->enqueue(Lane::upload, "next", [&] { ++ran; });
  device->wait(Lane::compute, device->record(Lane::upload));
  device->enqueue(Lane::compute, "dependent", [&] { ++ran; });
  EXPECT_THROW(device->host_wait(device->record(Lane::compute)), Error);
  EXPECT_EQ(ran, 0);
}

TEST_P(DeviceContract, destruction_runs_what_is_queued_even_across_lanes) {
  std::atomic<int> ran{0};
  for (int i = 0; i < 5; ++i)
    for (const Lane lane : lanes) {
      device->enqueue(lane, "count", [&] { ++ran; });
      const Event event = device->record(lane);
      for (const Lane other : lanes) device->wait(other, event);
    }
  device.reset();
  EXPECT_EQ(ran, 20);
}

TEST_P(DeviceContract, destruction_after_an_error_is_quiet) {
  device->enqueue(Lane::compute, "fail", [] { throw std::runtime_error("no"); });
  ::testing::internal::CaptureStderr();
  EXPECT_NO_THROW(device.reset());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_P(DeviceContract, what_work_holds_is_released_when_the_lane_has_passed_it) {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  device->enqueue(Lane::compute, "hold", [held = std::move(held)] { (void)*held; });
  device->synchronize();
  EXPECT_TRUE(watch.expired());
}

TEST_P(DeviceContract, times_and_copied_bytes_are_of_each_lane) {
  std::vector<std::byte> host(1000);
  device->copy(Lane::upload, device->arena(), host.data(), 1000);
  device->copy(Lane::upload, device->arena(), host.data(), 24);
  device->enqueue(Lane::compute, "work", [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  device->wait(Lane::download, device->record(Lane::compute));
  device->synchronize();
  EXPECT_EQ(device->times(Lane::upload).copied_bytes, 1024u);
  EXPECT_EQ(device->times(Lane::download).copied_bytes, 0u);
  EXPECT_GE(device->times(Lane::compute).busy_seconds, 0.020);
  EXPECT_GE(device->times(Lane::download).stalled_on(Lane::compute), 0.010);
  EXPECT_LT(device->times(Lane::download).busy_seconds, 0.010);
}

TEST_P(DeviceContract, pinned_memory_can_be_copied_and_unpinned) {
  std::vector<std::byte> host(3 * 4096, std::byte{5});
  const std::span<std::byte> part = std::span(host).subspan(100, 5000);
  if (device->pin(part)) {
    device->copy(Lane::upload, device->arena(), part.data(), part.size());
    device->synchronize();
    device->unpin(part);
  }
  EXPECT_TRUE(device->pin({}));
  device->unpin({});
}

// A pipeline as the engine runs it: upload, move on the compute lane, download, two buffers taken in turn.
TEST_P(DeviceContract, a_double_buffered_pipeline_ordered_by_events_loses_nothing) {
  constexpr std::size_t rounds = 20, half = 1000, whole = 2 * half;  // no multiple of the pattern
  std::vector<std::vector<std::byte>> in(rounds), out(rounds, std::vector<std::byte>(whole));
  Event emptied[2];
  for (std::size_t i = 0; i < rounds; ++i) {
    in[i] = pattern(whole, static_cast<unsigned>(5 * i));
    std::byte *arrived = device->arena() + i % 2 * 8192, *swapped = arrived + 4096;
    device->wait(Lane::upload, emptied[i % 2]);
    device->copy(Lane::upload, arrived, in[i].data(), whole);
    device->wait(Lane::compute, device->record(Lane::upload));
    device->copy(Lane::compute, swapped, arrived + half, half);
    device->copy(Lane::compute, swapped + half, arrived, half);
    device->wait(Lane::download, device->record(Lane::compute));
    device->copy(Lane::download, out[i].data(), swapped, whole);
    emptied[i % 2] = device->record(Lane::download);
  }
  device->synchronize();
  for (std::size_t i = 0; i < rounds; ++i) {
    std::rotate(in[i].begin(), in[i].begin() + half, in[i].end());
    EXPECT_EQ(out[i], in[i]) << "round " << i;
  }
}

}  // namespace
}  // namespace headrace
