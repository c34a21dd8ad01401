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
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "headrace/cpu_pool.h"
#include "headrace/mounts.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::string file_system_of(dev_t device) {
  const std::string wanted = fmt::format("{}:{}", major(device), minor(device));
  for (const Mount& mount : read_mounts())
    if (mount.device == wanted) return mount.type;
  return "";
}

// The whole drive's folder in sysfs, where `device` is it or a partition of it.
fs::path drive_folder(dev_t device) {
  std::error_code error;
  fs::path folder = fs::canonical(fmt::format("/sys/dev/block/{}:{}", major(device), minor(device)), error);
  if (error) return {};
  return fs::exists(folder / "partition", error) ? folder.parent_path() : folder;
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
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  return static_cast<double>(copied.load()) / spent.count() * 1e-9;
}

}  // namespace

DriveFacts drive_facts(int fd) {
  DriveFacts facts;
  struct stat status {};
  if (::fstat(fd, &status) != 0) return facts;
  facts.file_system = file_system_of(status.st_dev);
  const fs::path folder = drive_folder(status.st_dev);
  if (folder.empty()) return facts;
  const std::string model = line_of(folder / "device" / "model");
  facts.drive = model.empty() ? folder.filename().string() : model;
  // An NVMe namespace stands below its controller, which stands below its PCIe function.
  const fs::path function = folder / "device" / "device";
  facts.link_rate =
      pcie_rate(line_of(function / "current_link_speed"), line_of(function / "current_link_width"));
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
  std::ifstream file("/proc/self/io");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    Bytes value = 0;
    if (words >> key >> value && key == "read_bytes:") return value;
  }
  return std::nullopt;
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
