#include "src/bench/storage_facts.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

#include "headrace/block_device.h"
#include "headrace/cpu_pool.h"
#include "headrace/elapsed.h"
#include "headrace/machine_files.h"
#include "headrace/mounts.h"

namespace headrace {
namespace {

std::string file_system_of(dev_t device) {
  const std::string wanted = fmt::format("{}:{}", major(device), minor(device));
  for (const Mount& mount : read_mounts())
    if (mount.device == wanted) return mount.type;
  return "";
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

// Of all CPUs together, for about `time`.
double copy_rate_now(std::byte* memory, Bytes bytes, std::chrono::milliseconds time) {
  const auto threads = static_cast<Bytes>(std::max(available_cpus(), 1));
  const Bytes share = bytes / 2 / threads;
  if (share == 0) return 0;
  std::atomic<Bytes> copied{0};
  const auto start = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> copiers;
    for (Bytes t = 0; t < threads; ++t)
      copiers.emplace_back([&, from = memory + t * share, to = memory + bytes / 2 + t * share] {
        while (std::chrono::steady_clock::now() - start < time) {
          std::memcpy(to, from, share);
          std::atomic_signal_fence(std::memory_order_seq_cst);  // so that each copy is made
          copied += share;
        }
      });
  }
  return static_cast<double>(copied.load()) / seconds_since(start) * 1e-9;
}

}  // namespace

DriveFacts drive_facts(int fd) {
  DriveFacts facts;
  struct stat status {};
  if (::fstat(fd, &status) != 0) return facts;
  facts.file_system = file_system_of(status.st_dev);
  const auto device = block_device_of(status.st_dev);
  if (!device) return facts;
  const BlockDevice& drive = device->whole();
  facts.drive = drive.model.empty() ? drive.name : drive.model;
  facts.link_rate = pcie_rate(drive.link_speed, drive.link_width);
  return facts;
}

std::optional<double> pcie_rate(const std::string& speed, const std::string& width) {
  double transfers = 0, lanes = 0;
  const auto read = [](const std::string& text, double& value) {
    return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc{};
  };
  if (!read(speed, transfers) || !read(width, lanes) || !(transfers > 0) || !(lanes > 0)) return std::nullopt;
  const double line_code = transfers < 6 ? 8.0 / 10 : 128.0 / 130;
  return transfers * lanes * line_code / 8;
}

std::optional<Bytes> bytes_read_from_storage() {
  return MachineFiles().count_of("/proc/self/io", "read_bytes");
}

double process_cpu_seconds() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The best of a few: others may use the CPUs.
double memory_copy_rate(std::span<std::byte> memory) {
  constexpr Bytes most = Bytes{64} << 20;
  double best = 0;
  for (int tries = 0; tries < 4; ++tries)
    best = std::max(best, copy_rate_now(memory.data(), std::min<Bytes>(memory.size(), most),
                                        std::chrono::milliseconds(8)));
  return best;
}

}  // namespace headrace
