// What an NCCL operation moves between the processes of a job, as messages of MPI: each is announced first,
// so that ranks that differ in operation, order or size are found and not only waited for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cuda_emulation {

// The ranks of one communicator. `tag` is theirs alone among all communicators of the job; its messages take
// 2 * tag and 2 * tag + 1.
struct NcclRanks {
  int rank = 0;
  std::vector<int> world_ranks;  // in MPI_COMM_WORLD, of each rank
  int tag = 0;
  std::string text_of(int peer) const;
};

// One message to or from a rank. `announcement` is what its sender and its receiver must agree on.
struct Transfer {
  struct Announcement {
    char operation[16] = "";
    std::uint64_t bytes = 0;
    std::int64_t root = -1;      // of a broadcast
    std::uint64_t sequence = 0;  // of a collective within the communicator
    bool operator==(const Announcement&) const = default;
    std::string text() const;
  };
  enum class Direction : std::uint8_t { send, receive } direction = Direction::send;
  int peer = 0;
  void* data = nullptr;  // of announcement.bytes
  Announcement announcement;
};

// Runs all of them side by side, in order for each pair of ranks, until they are complete or `aborted`.
void run_transfers(const NcclRanks& ranks, std::span<const Transfer> transfers,
                   const std::atomic<bool>& aborted);

// This process's place in the job; {0} without MPI.
int world_rank();
// The members of a communicator find each other at its root, the process that made its id: gives the world
// rank of each. Waits for ever for one that does not come.
std::vector<int> meet(int root_world_rank, int tag, int rank, int size);

}  // namespace cuda_emulation
