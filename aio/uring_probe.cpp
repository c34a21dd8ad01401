#include <liburing.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "aio/uring.h"
#include "aio/uring_refusal.h"
#include "headrace/io_probe.h"
#include "headrace/owned.h"

namespace headrace {
namespace {

using namespace literals;

struct SetUpFlag {
  const char* name;
  unsigned flags;
};
constexpr SetUpFlag optional_flags[] = {
    // of IoEngineOptions
    {"IOPOLL", IORING_SETUP_IOPOLL},
    {"SQPOLL", IORING_SETUP_SQPOLL},
};

struct Operation {
  const char* name;
  int code;
};
constexpr Operation used_operations[] = {{"READ", IORING_OP_READ},
                                         {"WRITE", IORING_OP_WRITE},
                                         {"READ_FIXED", IORING_OP_READ_FIXED},
                                         {"WRITE_FIXED", IORING_OP_WRITE_FIXED}};

// A ring without liburing's mappings of it: enough for registering, and nothing to undo but the descriptor.
Fd set_up(unsigned flags) {
  constexpr unsigned entries = 4;
  io_uring_params params{};
  params.flags = flags;
  params.sq_thread_idle = 1;  // milliseconds until the thread of SQPOLL sleeps
  return Fd(static_cast<int>(::syscall(__NR_io_uring_setup, entries, &params)));
}

int register_with(const Fd& ring, unsigned what, const void* argument, unsigned count) {
  return ::syscall(__NR_io_uring_register, ring.get(), what, argument, count) < 0 ? errno : 0;
}

void try_operations(const Fd& ring, UringProbe& probe) {
  constexpr unsigned most = 256;
  std::vector<std::uint64_t> memory(
      (sizeof(io_uring_probe) + most * sizeof(io_uring_probe_op)) / sizeof(std::uint64_t) + 1);
  auto* const answer = reinterpret_cast<io_uring_probe*>(memory.data());
  const int code = register_with(ring, IORING_REGISTER_PROBE, answer, most);
  if (code == 0) probe.known_operations = answer->last_op + 1;
  for (const Operation& operation : used_operations) {
    const bool known = code == 0 && operation.code < answer->ops_len &&
                       (answer->ops[operation.code].flags & IO_URING_OP_SUPPORTED) != 0;
    probe.operations.push_back({operation.name, known ? 0 : ENOSYS});
  }
}

IoTrial try_buffers(const Fd& ring, Bytes bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {"buffers", ENOMEM};
  const iovec range{memory, bytes};
  const IoTrial trial{"buffers", register_with(ring, IORING_REGISTER_BUFFERS, &range, 1)};
  ::munmap(memory, bytes);
  return trial;
}

// As the engine does: a filter may let rings be made and not be entered.
void try_requests(UringProbe& probe) {
  constexpr std::chrono::seconds long_enough{1};
  try {
    aio::Uring({}).try_out();
    probe.workers = {"workers", aio::Uring({}).try_worker(long_enough)};
  } catch (const aio::UringRefused& refusal) {
    probe.code = refusal.code();
    probe.refusal = refusal.what();
  }
}

}  // namespace

UringProbe probe_uring() {
  constexpr Bytes registered_bytes = 1_MiB;
  UringProbe probe;
  const Fd ring = set_up(0);
  if (!ring) {
    probe.code = errno;
    probe.refusal = aio::UringRefused(probe.code).what();
    return probe;
  }
  for (const SetUpFlag& flag : optional_flags) {
    const Fd with_flag = set_up(flag.flags);
    probe.flags.push_back({flag.name, with_flag ? 0 : errno});
  }
  try_operations(ring, probe);
  const Fd some_file(::eventfd(0, EFD_CLOEXEC));
  const int descriptor = some_file.get();
  probe.files = {"files", register_with(ring, IORING_REGISTER_FILES, &descriptor, 1)};
  probe.buffer_bytes = registered_bytes;
  probe.buffers = try_buffers(ring, registered_bytes);
  if (std::ranges::all_of(probe.operations, [](const IoTrial& trial) { return trial.code == 0; }))
    try_requests(probe);
  return probe;
}

}  // namespace headrace
