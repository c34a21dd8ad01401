#include "support/cuda_emulation/runtime.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "support/cuda_emulation/accesses.h"
#include "support/cuda_emulation/block.h"
#include "support/cuda_emulation/launch.h"
#include "support/cuda_emulation/options.h"
#include "support/cuda_emulation/stream.h"
#include "support/cuda_emulation/work_log.h"

namespace cuda_emulation {
namespace {

constexpr int violation_status = 86;

void declare(const void* address, std::size_t bytes, bool write, const MemoryRange& range) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (at - range.base + bytes > range.bytes)
    violation(fmt::format("\"{}\" {} {} bytes at {} of {}", running_work(), write ? "writes" : "reads", bytes,
                          at - range.base, describe(range, 0, range.bytes)));
  if (running_accesses == nullptr) violation("memory is declared outside of stream work");
  running_accesses->note(at - range.base + range.alias, bytes, write);
}

void* touch(const void* address, std::size_t bytes, bool write) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (bytes == 0) return const_cast<void*>(address);
  const MemoryRange* range = range_of(at);
  if (range == nullptr) refuse_freed(at);
  if (range == nullptr)
    violation(fmt::format("\"{}\" {} {} bytes of memory that is neither a device's nor registered",
                          running_work(), write ? "writes" : "reads", bytes));
  declare(address, bytes, write, *range);
  return reinterpret_cast<void*>(at - range->base + range->alias);
}

// Every block once, in an order of the launch's own.
template <class Body>
void for_each_block(dim3 grid, std::uint64_t salt, Body body) {
  const std::uint64_t count = std::uint64_t{grid.x} * grid.y * grid.z;
  std::uint64_t step = (salt * 2654435761u) % count | 1u;
  while (std::gcd(step, count) != 1) ++step;
  for (std::uint64_t i = 0, at = salt % count; i < count; ++i, at = (at + step) % count)
    body(uint3{static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
               static_cast<unsigned>(at / (std::uint64_t{grid.x} * grid.y))});
}

// A fault of the program under test, said in words; others go their usual way.
void report_fault(int signal, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  if (const MemoryRange* range = range_of(at); range != nullptr && range->device)
    violation(fmt::format(
        "{} touches {} by its device address: host code may not, and a kernel only through its arguments",
        running_work(), describe(*range, at - range->base, 1)));
  if (const MemoryRange* range = range_near_alias(at))
    violation(fmt::format("\"{}\" touches {:+} of {}", running_work(),
                          static_cast<std::ptrdiff_t>(at - range->alias), describe(*range, 0, range->bytes)));
  refuse_freed(at);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

struct FaultHandler {
  FaultHandler() {
    struct sigaction action {};
    action.sa_sigaction = report_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    ::sigaction(SIGSEGV, &action, nullptr);
    ::sigaction(SIGBUS, &action, nullptr);
  }
} const fault_handler;

}  // namespace

void violation(const std::string& what) {
  fmt::print(stderr, "cuda_emulation: {}\n", what);
  std::fflush(nullptr);
  ::_exit(violation_status);
}

void enqueue(cudaStream_t stream, const char* name, std::function<void()> work) {
  if (stream == nullptr) violation(fmt::format("\"{}\" on the default stream", name));
  reinterpret_cast<Stream*>(stream)->enqueue(name, std::move(work));
}

const void* readable(const void* address, std::size_t bytes) {
  return touch(address, bytes, false);
}
void* writable(void* address, std::size_t bytes) {
  return touch(address, bytes, true);
}

void* kernel_address(const void* address, const char* kernel, int argument) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  // One past the end is an address too: of an empty part.
  const MemoryRange* range = range_of(at);
  if (range == nullptr) range = range_of(at - 1);
  if (range == nullptr) refuse_freed(at);
  if (range == nullptr)
    violation(fmt::format("kernel {}: argument {} points to memory that is neither a device's nor registered",
                          kernel, argument));
  return reinterpret_cast<void*>(at - range->base + range->alias);
}

namespace {

// Of every device that CUDA 13 knows.
void check_limits(const char* name, dim3 grid, dim3 block) {
  constexpr unsigned most_x = 0x7fffffff, most_yz = 65535, most_threads = 1024, most_block_z = 64;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  const auto within = [](unsigned size, unsigned most) { return size >= 1 && size <= most; };
  if (!within(grid.x, most_x) || !within(grid.y, most_yz) || !within(grid.z, most_yz))
    violation(
        fmt::format("kernel {}: no device runs a grid of {} x {} x {} blocks", name, grid.x, grid.y, grid.z));
  if (threads < 1 || threads > most_threads || block.z > most_block_z)
    violation(fmt::format("kernel {}: no device runs a block of {} x {} x {} threads", name, block.x, block.y,
                          block.z));
}

}  // namespace

void enqueue_grid(const char* name, dim3 grid, dim3 block_size, std::size_t shared_bytes, cudaStream_t stream,
                  std::function<std::function<void()>()> bind) {
  static std::atomic<std::uint64_t> launches{0};
  check_limits(name, grid, block_size);
  if (fails_now("launch")) return fail_launch(cudaErrorLaunchOutOfResources);
  enqueue(stream, name, [=, bind = std::move(bind), salt = launches++] {
    if (fails_now("kernel")) return fail_device(cudaErrorIllegalAddress);
    static thread_local Block own;
    const std::function<void()> thread = bind();
    std::uint64_t seed = (options().delay_seed << 32) + (salt << 16);
    for_each_block(grid, salt + options().delay_seed,
                   [&](uint3 at) { own.run(name, grid, block_size, at, shared_bytes, ++seed, thread); });
  });
}

}  // namespace cuda_emulation
