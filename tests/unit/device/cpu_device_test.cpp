// What is particular to the CPU device: the arena's cost, the paced link, locked memory, delays, overhead.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "headrace/cpu_pool.h"
#include "headrace/device.h"
#include "headrace/elapsed.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;
constexpr Bytes mebibyte = Bytes{1} << 20;

// A value in kB of /proc/self/smaps ("Rss", "Locked"), of this range alone: others use memory too, sanitizers
// most of all.
Bytes mapped_bytes(std::span<const std::byte> range, const std::string& key) {
  const auto begin = reinterpret_cast<std::uintptr_t>(range.data()), end = begin + range.size();
  std::ifstream file("/proc/self/smaps");
  Bytes bytes = 0;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    unsigned long first = 0, last = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &last) == 2)
      inside = first < end && last > begin;
    else if (inside && line.starts_with(key + ":"))
      bytes += std::stoull(line.substr(key.size() + 1)) << 10;
  }
  return bytes;
}

TEST(CpuDevice, an_arena_larger_than_the_machine_costs_nothing_until_it_is_touched) {
  const Bytes machine =
      static_cast<Bytes>(::sysconf(_SC_PHYS_PAGES)) * static_cast<Bytes>(::sysconf(_SC_PAGESIZE));
  const auto device = make_cpu_device({.memory_bytes = 2 * machine});
  device->fill_zero(Lane::compute, device->arena() + machine, 4096);
  device->synchronize();
  const Bytes resident = mapped_bytes({device->arena(), 2 * machine}, "Rss");
  EXPECT_GE(resident, 4096u);
  EXPECT_LT(resident, 16 * mebibyte);
}

TEST(CpuDevice, a_capacity_of_zero_or_an_odd_number_is_kept) {
  EXPECT_EQ(make_cpu_device({.memory_bytes = 0})->info().memory_capacity_bytes, 0u);
  EXPECT_EQ(make_cpu_device({.memory_bytes = 12345})->info().memory_capacity_bytes, 12345u);
}

TEST(CpuDevice, an_arena_the_kernel_refuses_is_an_error_not_a_crash) {
  EXPECT_THROW(make_cpu_device({.memory_bytes = Bytes{1} << 60}), Error);
}

TEST(CpuDevice, compute_threads_default_to_those_of_the_pool) {
  EXPECT_EQ(make_cpu_device({.memory_bytes = 0})->info().compute_threads, cpu_threads());
  EXPECT_EQ(make_cpu_device({.memory_bytes = 0, .compute_threads = 3})->info().compute_threads, 3);
}

TEST(CpuDevice, says_what_its_link_is_and_at_which_rate) {
  const auto plain = make_cpu_device({.memory_bytes = 0});
  EXPECT_EQ(plain->info().link, "memcpy");
  EXPECT_EQ(plain->info().link_bytes_per_second, 0.0);
  EXPECT_EQ(plain->info().copy_engines, 2);
  const auto paced = make_cpu_device({.memory_bytes = 0, .link_bytes_per_second = 8e9});
  EXPECT_EQ(paced->info().link, "paced at 8 GB/s");
  EXPECT_EQ(paced->info().link_bytes_per_second, 8e9);
}

class PacedLink : public testing::Test {
 protected:
  // An upper bound must hold on a busy machine too: one undisturbed attempt is enough.
  template <class Work>
  static double shortest_of_attempts(const Work& work) {
    double shortest = 1e9;
    for (int attempt = 0; attempt < 8; ++attempt) {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(5));  // the link is idle: no credit of the last attempt
      const auto start = Clock::now();
      work();
      shortest = std::min(shortest, seconds_since(start));
    }
    return shortest;
  }

  static constexpr double rate = 200e6;
  std::unique_ptr<Device> device =
      make_cpu_device({.memory_bytes = 8 * mebibyte, .link_bytes_per_second = rate});
  std::vector<std::byte> host = std::vector<std::byte>(8 * mebibyte);
};

TEST_F(PacedLink, a_copy_keeps_its_lane_busy_for_bytes_over_rate) {
  for (const Lane lane : {Lane::upload, Lane::download}) {
    device->copy(lane, device->arena(), host.data(), 4 * mebibyte);
    device->synchronize();
    EXPECT_GE(device->times(lane).busy_seconds, 4 * mebibyte / rate) << name_of(lane);
  }
}

TEST_F(PacedLink, timer_errors_of_many_small_copies_do_not_add_up) {
  constexpr int copies = 200;
  constexpr Bytes bytes = 40000;  // 0.2 ms each: a sleep is late by about a third of that
  constexpr double ideal = copies * bytes / rate;
  const double fastest = shortest_of_attempts([&] {
    for (int i = 0; i < copies; ++i) device->copy(Lane::upload, device->arena(), host.data(), bytes);
    device->synchronize();
  });
  EXPECT_GE(fastest, ideal * 0.999);
  EXPECT_LT(fastest, ideal * 1.15);
}

TEST_F(PacedLink, an_idle_link_saves_up_no_credit) {
  device->copy(Lane::upload, device->arena(), host.data(), mebibyte);
  device->synchronize();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double before = device->times(Lane::upload).busy_seconds;
  for (int i = 0; i < 4; ++i) device->copy(Lane::upload, device->arena(), host.data(), 2 * mebibyte);
  device->synchronize();
  EXPECT_GE(device->times(Lane::upload).busy_seconds - before, 8 * mebibyte / rate);
}

TEST_F(PacedLink, upload_and_download_each_have_the_whole_rate) {
  const double fastest = shortest_of_attempts([&] {
    device->copy(Lane::upload, device->arena(), host.data(), 4 * mebibyte);
    device->copy(Lane::download, host.data() + 4 * mebibyte, device->arena() + 4 * mebibyte, 4 * mebibyte);
    device->synchronize();
  });
  EXPECT_LT(fastest, 1.5 * 4 * mebibyte / rate);
}

TEST_F(PacedLink, compute_and_communicate_are_not_paced) {
  // So slow a link that a copy's own time does not matter, instrumented or on a busy machine.
  device = make_cpu_device({.memory_bytes = 3 * mebibyte, .link_bytes_per_second = 5e6});
  const Lane all[] = {Lane::upload, Lane::compute, Lane::communicate};
  for (std::size_t i = 0; i < 3; ++i)
    device->copy(all[i], device->arena() + i * mebibyte, host.data() + i * mebibyte, mebibyte);
  device->synchronize();
  const double paced = device->times(Lane::upload).busy_seconds;
  EXPECT_LT(device->times(Lane::compute).busy_seconds, paced / 2);
  EXPECT_LT(device->times(Lane::communicate).busy_seconds, paced / 2);
}

class CpuDevicePin : public testing::Test {
 protected:
  CpuDevicePin() {
    void* address = ::mmap(nullptr, 2 * mebibyte, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) throw std::runtime_error("mmap failed");
    ::madvise(address, 2 * mebibyte, MADV_NOHUGEPAGE);  // a touch brings one page
    memory = {static_cast<std::byte*>(address), 2 * mebibyte};
  }
  ~CpuDevicePin() override { ::munmap(memory.data(), memory.size()); }

  // Pages that are locked and there.
  Bytes locked_bytes() const { return mapped_bytes(memory, "Locked"); }

  std::unique_ptr<Device> device = make_cpu_device({.memory_bytes = 0});
  std::span<std::byte> memory;
};

TEST_F(CpuDevicePin, locks_pages_only_as_they_are_touched) {
  if (!device->pin(memory)) GTEST_SKIP() << "this user may not lock 2 MiB";
  EXPECT_EQ(locked_bytes(), 0u);
  std::memset(memory.data(), 1, mebibyte);
  EXPECT_EQ(locked_bytes(), mebibyte);
}

TEST_F(CpuDevicePin, unpin_unlocks_what_pin_locked) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers' munlock does nothing";
#endif
  std::memset(memory.data(), 1, memory.size());
  if (!device->pin(memory)) GTEST_SKIP() << "this user may not lock 2 MiB";
  EXPECT_EQ(locked_bytes(), memory.size());
  device->unpin(memory);
  EXPECT_EQ(locked_bytes(), 0u);
}

// FIELD-CASES M2. As another user, for root may lock what it likes; in a child, for the limit cannot be
// raised again.
TEST(CpuDevicePinBeyondTheLimit, is_refused_with_one_message_and_memory_stays_usable) {
  testing::internal::CaptureStderr();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{mebibyte, mebibyte};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (::geteuid() == 0 && ::setuid(65534) != 0)) ::_exit(77);
    const auto device = make_cpu_device({.memory_bytes = 0});
    std::vector<std::byte> memory(4 * mebibyte), copy(4 * mebibyte);
    const bool first = device->pin(memory), second = device->pin(memory);
    device->copy(Lane::upload, copy.data(), memory.data(), memory.size());
    device->synchronize();
    ::_exit(!first && !second ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  const std::string log = testing::internal::GetCapturedStderr();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "cannot become another user";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const auto first = log.find("could not be pinned");
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("could not be pinned", first + 1), std::string::npos) << log;
}

TEST(CpuDeviceDelays, hold_work_back_so_that_a_missing_event_shows) {
  const auto device = make_cpu_device({.memory_bytes = 0, .largest_delay_seconds = 0.005});
  int overtaken = 0;
  for (int i = 0; i < 40; ++i) {
    std::atomic<bool> written{false}, early{false};
    device->enqueue(Lane::upload, "write", [&] { written = true; });
    device->enqueue(Lane::compute, "read without waiting", [&] { early = !written; });
    device->synchronize();
    overtaken += early;
  }
  EXPECT_GT(overtaken, 0);
  EXPECT_LT(overtaken, 40);
}

// Generous against a busy machine; perf figures are about 0.3 us on an idle one.
TEST(CpuDeviceOverhead, enqueueing_costs_microseconds) {
  const auto device = make_cpu_device({.memory_bytes = 0});
  std::atomic<bool> released{false};
  device->enqueue(Lane::compute, "block", [&] {
    while (!released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  constexpr int count = 20000;
  const auto start = Clock::now();
  for (int i = 0; i < count; ++i) device->enqueue(Lane::compute, "nothing", [] {});
  const double each = seconds_since(start) / count;
  released = true;
  device->synchronize();
  RecordProperty("nanoseconds_per_enqueue", static_cast<int>(each * 1e9));
  EXPECT_LT(each, 20e-6);
}

}  // namespace
}  // namespace headrace
