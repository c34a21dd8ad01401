#include "support/cuda_emulation/nccl_transfers.h"

#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "support/cuda_emulation/runtime.h"

namespace cuda_emulation {
namespace {

// MPI's calls are made one at a time: those of a stream's thread, and those that start a communicator.
std::mutex& mpi_calls() {
  static std::mutex* const one = new std::mutex;
  return *one;
}

void check(int result) {
  if (result != MPI_SUCCESS) violation(fmt::format("a message between ranks failed: MPI error {}", result));
}

// Messages under way.
class Requests {
 public:
  ~Requests() { cancel(); }

  void send(const void* data, std::size_t bytes, int to, int tag) {
    each_piece(static_cast<const std::byte*>(data), bytes, [&](const std::byte* piece, int count) {
      check(MPI_Isend(piece, count, MPI_BYTE, to, tag, MPI_COMM_WORLD, add()));
    });
  }
  // Complete when the other side receives it, however small: NCCL buffers nothing that a program may count
  // on.
  void send_unbuffered(const void* data, std::size_t bytes, int to, int tag) {
    each_piece(static_cast<const std::byte*>(data), bytes, [&](const std::byte* piece, int count) {
      check(MPI_Issend(piece, count, MPI_BYTE, to, tag, MPI_COMM_WORLD, add()));
    });
  }
  void receive(void* data, std::size_t bytes, int from, int tag) {
    each_piece(static_cast<std::byte*>(data), bytes, [&](std::byte* piece, int count) {
      check(MPI_Irecv(piece, count, MPI_BYTE, from, tag, MPI_COMM_WORLD, add()));
    });
  }

  // Polls, less and less often; false when aborted.
  bool wait(const std::atomic<bool>& aborted) {
    constexpr int yields = 200;
    constexpr auto longest_sleep = std::chrono::microseconds(200);
    auto sleep = std::chrono::microseconds(5);
    for (int attempt = 0; !aborted; ++attempt) {
      if (complete()) return true;
      if (attempt < yields) {
        ::sched_yield();
        continue;
      }
      std::this_thread::sleep_for(sleep);
      sleep = std::min(sleep * 2, longest_sleep);
    }
    return false;
  }

 private:
  template <class Byte, class Start>
  static void each_piece(Byte* data, std::size_t bytes, const Start& start) {
    constexpr std::size_t largest = std::size_t{1} << 30;  // MPI's counts are int
    const std::lock_guard lock(mpi_calls());
    for (std::size_t done = 0; done < bytes; done += largest)
      start(data + done, static_cast<int>(std::min(largest, bytes - done)));
  }

  MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }

  bool complete() {
    const std::lock_guard lock(mpi_calls());
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE));
    if (done != 0) requests_.clear();
    return done != 0;
  }

  void cancel() {
    const std::lock_guard lock(mpi_calls());
    for (MPI_Request& request : requests_) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }

  std::vector<MPI_Request> requests_;
};

// Announcements are complete before data moves, so that a wrong size never meets a buffer.
void require_agreement(const NcclRanks& ranks, std::span<const Transfer> transfers,
                       std::span<const Transfer::Announcement> received) {
  for (std::size_t i = 0; i < transfers.size(); ++i)
    if (transfers[i].direction == Transfer::Direction::receive && received[i] != transfers[i].announcement)
      violation(fmt::format("NCCL rank {} is in {}, {} is in {}", ranks.rank,
                            transfers[i].announcement.text(), ranks.text_of(transfers[i].peer),
                            received[i].text()));
}

}  // namespace

std::string NcclRanks::text_of(int peer) const {
  return fmt::format("rank {} (process {})", peer, world_ranks[static_cast<std::size_t>(peer)]);
}

std::string Transfer::Announcement::text() const {
  const std::string size = fmt::format("{} of {} bytes", operation, bytes);
  if (sequence == 0) return size;
  return root < 0 ? fmt::format("{} (#{})", size, sequence)
                  : fmt::format("{} from {} (#{})", size, root, sequence);
}

void run_transfers(const NcclRanks& ranks, std::span<const Transfer> transfers,
                   const std::atomic<bool>& aborted) {
  if (transfers.empty()) return;
  const auto process = [&](const Transfer& transfer) {
    return ranks.world_ranks[static_cast<std::size_t>(transfer.peer)];
  };
  std::vector<Transfer::Announcement> received(transfers.size());
  Requests announcements;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& each = transfers[i];
    if (each.direction == Transfer::Direction::send)
      announcements.send(&each.announcement, sizeof(Transfer::Announcement), process(each), 2 * ranks.tag);
    else
      announcements.receive(&received[i], sizeof(Transfer::Announcement), process(each), 2 * ranks.tag);
  }
  if (!announcements.wait(aborted)) return;
  require_agreement(ranks, transfers, received);

  Requests data;
  for (const Transfer& each : transfers) {
    if (each.direction == Transfer::Direction::send)
      data.send_unbuffered(each.data, each.announcement.bytes, process(each), 2 * ranks.tag + 1);
    else
      data.receive(each.data, each.announcement.bytes, process(each), 2 * ranks.tag + 1);
  }
  data.wait(aborted);
}

int world_rank() {
  const std::lock_guard lock(mpi_calls());
  int initialised = 0, rank = 0;
  MPI_Initialized(&initialised);
  if (initialised != 0) check(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  return rank;
}

std::vector<int> meet(int root_world_rank, int tag, int rank, int size) {
  struct Member {
    int rank = 0, size = 0, world_rank = 0;
  };
  static const std::atomic<bool> never{false};
  const Member self{rank, size, world_rank()};
  std::vector<int> world_ranks(static_cast<std::size_t>(size), -1);
  const auto seat = [&](const Member& member) {
    if (member.size != size || member.rank < 0 || member.rank >= size)
      violation(fmt::format("ncclCommInitRank: rank {} of {}, another member has rank {} of {}", rank, size,
                            member.rank, member.size));
    int& place = world_ranks[static_cast<std::size_t>(member.rank)];
    if (place >= 0) violation(fmt::format("ncclCommInitRank: two members are rank {}", member.rank));
    place = member.world_rank;
  };
  seat(self);
  Requests requests;
  if (self.world_rank == root_world_rank) {
    std::vector<Member> others(static_cast<std::size_t>(size - 1));
    for (Member& other : others) requests.receive(&other, sizeof other, MPI_ANY_SOURCE, 2 * tag);
    requests.wait(never);
    for (const Member& other : others) seat(other);
    for (const Member& other : others)
      requests.send(world_ranks.data(), world_ranks.size() * sizeof(int), other.world_rank, 2 * tag);
  } else {
    requests.send(&self, sizeof self, root_world_rank, 2 * tag);
    requests.receive(world_ranks.data(), world_ranks.size() * sizeof(int), root_world_rank, 2 * tag);
  }
  requests.wait(never);
  return world_ranks;
}

}  // namespace cuda_emulation
