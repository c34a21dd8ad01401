// The functions of NCCL that gpu/ uses, between processes that MPI connects; one rank alone needs no MPI.
// Operations run on the emulated stream. Ranks that call different operations, orders or sizes are
// violations.
#include <nccl.h>

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "support/cuda_emulation/nccl_transfers.h"
#include "support/cuda_emulation/options.h"
#include "support/cuda_emulation/runtime.h"
#include "support/cuda_emulation/stream.h"

using namespace cuda_emulation;

struct ncclComm {
  NcclRanks ranks;
  std::atomic<bool> aborted{false};
  std::atomic<int> pending{0};    // groups enqueued and not yet over
  std::uint64_t collectives = 0;  // so far; the owner thread's
  int size() const { return static_cast<int>(ranks.world_ranks.size()); }
  bool has(int rank) const { return rank >= 0 && rank < size(); }
};

namespace {

struct Id {
  char magic[8] = "emunccl";
  int root_world_rank = 0;
  int tag = 0;
};
static_assert(sizeof(Id) <= sizeof(ncclUniqueId));

// One call, as the stream will run it.
struct Operation {
  const char* name = "";
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t bytes = 0;  // of one rank
  int peer = -1;          // or root
  std::uint64_t sequence = 0;
};

struct Enqueued {
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  Operation operation;
};

struct Group {
  int depth = 0;
  ncclResult_t result = ncclSuccess;  // of the calls so far
  std::vector<Enqueued> operations;
};
thread_local Group group;
thread_local std::string last_error;

ncclResult_t fail(ncclResult_t result, std::string why) {
  last_error = std::move(why);
  if (group.depth > 0) group.result = result;
  return result;
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

// The transfers of one operation, with addresses at which the stream's work may touch their memory.
class Plan {
 public:
  explicit Plan(const ncclComm& comm) : comm_(comm) {}

  void add(const Operation& operation) {
    const std::string_view name = operation.name;
    if (name == "ncclAllGather")
      all_gather(operation);
    else if (name == "ncclBroadcast")
      broadcast(operation);
    else if (name == "ncclSend")
      add(operation, Transfer::Direction::send, operation.peer, read(operation.send, operation.bytes));
    else
      add(operation, Transfer::Direction::receive, operation.peer, write(operation.receive, operation.bytes));
  }
  std::span<const Transfer> transfers() const { return transfers_; }

 private:
  static void* read(const void* address, std::size_t bytes) {
    return bytes == 0 ? nullptr : const_cast<void*>(readable(address, bytes));
  }
  static void* write(void* address, std::size_t bytes) {
    return bytes == 0 ? nullptr : writable(address, bytes);
  }

  void all_gather(const Operation& operation) {
    const auto place = [&](int rank) {
      return static_cast<std::byte*>(operation.receive) + operation.bytes * static_cast<std::size_t>(rank);
    };
    const int self = comm_.ranks.rank;
    void* const own = read(operation.send, operation.bytes);
    if (operation.send != place(self)) {
      require_apart(operation, place(0), operation.bytes * static_cast<std::size_t>(comm_.size()));
      std::memcpy(write(place(self), operation.bytes), own, operation.bytes);
    }
    for (int r = 0; r < comm_.size(); ++r) {
      if (r == self) continue;
      add(operation, Transfer::Direction::send, r, own);
      add(operation, Transfer::Direction::receive, r, write(place(r), operation.bytes));
    }
  }

  void broadcast(const Operation& operation) {
    if (operation.peer != comm_.ranks.rank)
      return add(operation, Transfer::Direction::receive, operation.peer,
                 write(operation.receive, operation.bytes));
    void* const own = read(operation.send, operation.bytes);
    if (operation.send != operation.receive) {
      require_apart(operation, operation.receive, operation.bytes);
      std::memcpy(write(operation.receive, operation.bytes), own, operation.bytes);
    }
    for (int r = 0; r < comm_.size(); ++r)
      if (r != operation.peer) add(operation, Transfer::Direction::send, r, own);
  }

  static void require_apart(const Operation& operation, const void* receive, std::size_t bytes) {
    const auto* const from = static_cast<const std::byte*>(operation.send);
    const auto* const to = static_cast<const std::byte*>(receive);
    if (from < to + bytes && to < from + operation.bytes)
      violation(fmt::format("{}: its buffers overlap and are not in place", operation.name));
  }

  void add(const Operation& operation, Transfer::Direction direction, int peer, void* data) {
    Transfer transfer{.direction = direction, .peer = peer, .data = data, .announcement = {}};
    const bool collective = operation.sequence > 0;
    const char* const name = collective ? operation.name : "ncclSend";
    std::strncpy(transfer.announcement.operation, name, sizeof transfer.announcement.operation - 1);
    transfer.announcement.bytes = operation.bytes;
    transfer.announcement.root = collective ? operation.peer : -1;
    transfer.announcement.sequence = operation.sequence;
    transfers_.push_back(transfer);
  }

  const ncclComm& comm_;
  std::vector<Transfer> transfers_;
};

void run(ncclComm& comm, const std::vector<Operation>& operations) {
  if (!comm.aborted) {
    Plan plan(comm);
    for (const Operation& operation : operations) plan.add(operation);
    run_transfers(comm.ranks, plan.transfers(), comm.aborted);
  }
  --comm.pending;
}

// The operations of a group that share a communicator and a stream run as one.
void flush(std::vector<Enqueued> all) {
  while (!all.empty()) {
    ncclComm* const comm = all.front().comm;
    const cudaStream_t stream = all.front().stream;
    std::vector<Operation> together;
    std::erase_if(all, [&](const Enqueued& each) {
      const bool same = each.comm == comm && each.stream == stream;
      if (same) together.push_back(each.operation);
      return same;
    });
    ++comm->pending;
    const char* const name = together.front().name;
    enqueue(stream, name, [comm, together = std::move(together)] { run(*comm, together); });
  }
}

ncclResult_t submit(ncclComm* comm, cudaStream_t stream, ncclDataType_t type, std::size_t count,
                    Operation operation, bool collective) {
  const char* const name = operation.name;
  if (comm == nullptr) return fail(ncclInvalidArgument, fmt::format("{}: no communicator", name));
  if (size_of(type) == 0)
    return fail(ncclInvalidArgument, fmt::format("{}: type {}", name, static_cast<int>(type)));
  if (!comm->has(operation.peer) && (!collective || operation.peer != -1))
    return fail(ncclInvalidArgument, fmt::format("{}: rank {} of {}", name, operation.peer, comm->size()));
  if (!collective && operation.peer == comm->ranks.rank)
    violation("a message of NCCL to oneself is not emulated");
  if (device_has_failed()) return fail(ncclUnhandledCudaError, "the device has failed");
  if (fails_now(name)) return fail(ncclSystemError, "a fault that the test wants");
  operation.bytes = count * size_of(type);
  if (collective && operation.bytes == 0) return ncclSuccess;
  if (collective) operation.sequence = ++comm->collectives;
  group.operations.push_back({comm, stream, operation});
  if (group.depth == 0) flush(std::exchange(group.operations, {}));
  return ncclSuccess;
}

// The lane's work that still uses the communicator ends first.
void finish_pending(const ncclComm& comm) {
  while (comm.pending > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made{0};
  if (fails_now("ncclGetUniqueId")) return fail(ncclSystemError, "a fault that the test wants");
  Id own;
  own.root_world_rank = world_rank();
  own.tag = (own.root_world_rank << 16) | (++made & 0xffff);
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &own, sizeof own);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  Id known;
  if (std::memcmp(&id, known.magic, sizeof known.magic) != 0) return fail(ncclInvalidArgument, "not an id");
  if (size < 1 || rank < 0 || rank >= size)
    return fail(ncclInvalidArgument, fmt::format("rank {} of {}", rank, size));
  if (fails_now("ncclCommInitRank")) return fail(ncclSystemError, "a fault that the test wants");
  std::memcpy(static_cast<void*>(&known), &id, sizeof known);
  auto* made = new ncclComm;
  made->ranks = {rank, {0}, known.tag};
  if (size > 1) made->ranks.world_ranks = meet(known.root_world_rank, known.tag, rank, size);
  *comm = made;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  finish_pending(*comm);
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  comm->aborted = true;
  return ncclCommDestroy(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm == nullptr) return ncclInvalidArgument;
  *error = fails_now("ncclCommGetAsyncError") ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) {
  return last_error.c_str();
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  const ncclResult_t result = std::exchange(group.result, ncclSuccess);
  std::vector<Enqueued> operations = std::exchange(group.operations, {});
  if (result == ncclSuccess) flush(std::move(operations));
  return result;
}

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, stream, type, count, {.name = "ncclAllGather", .send = send, .receive = receive}, true);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, stream, type, count,
                {.name = "ncclBroadcast", .send = send, .receive = receive, .peer = root}, true);
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit(comm, stream, type, count, {.name = "ncclSend", .send = data, .peer = peer}, false);
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit(comm, stream, type, count, {.name = "ncclRecv", .receive = data, .peer = peer}, false);
}

}  // extern "C"
