// One rank of a job over NCCL that goes wrong: nccl_rank SCENARIO [seconds of time-out]. nccl_jobs_test.py
// says what each must end in.
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "headrace/communicator.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

constexpr Bytes arena_bytes = Bytes{1} << 20;

struct Rank {
  explicit Rank(double timeout_seconds)
      : options{.timeout_seconds = timeout_seconds},
        device(make_cuda_device({.memory_bytes = arena_bytes,
                                 .local_rank = launch_info().local_rank,
                                 .local_size = launch_info().local_size})),
        control(make_mpi_communicator(*device, options)),
        rank(control->rank()),
        ranks(static_cast<std::size_t>(control->size())) {}
  void join() { comm = make_nccl_communicator(*device, std::move(control), options); }
  void finish() { device->host_wait(device->record(Lane::communicate)); }
  void enqueue_gather(Bytes bytes, std::string_view label) {
    comm->all_gather(device->arena(), std::vector<Bytes>(ranks, bytes), Traffic::all_gather, label);
  }
  void gather(Bytes bytes, std::string_view label) {
    enqueue_gather(bytes, label);
    finish();
  }

  CommunicatorOptions options;
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> control, comm;
  int rank;
  std::size_t ranks;
};

void nothing(Rank& rank) {
  rank.join();
}

// The others are within a gather when rank 1 goes.
void die_in_a_gather(Rank& rank) {
  rank.join();
  for (int i = 0; i < 10; ++i) rank.gather(1000, "h.3");
  if (rank.rank == 1) ::raise(SIGKILL);
  rank.gather(1000, "h.4");
}

void stop_in_a_gather(Rank& rank) {
  rank.join();
  rank.gather(1000, "h.3");
  if (rank.rank == 1) ::raise(SIGSTOP);
  rank.gather(1000, "h.4");
}

// A rank that takes the id, and then does not come.
void never_join(Rank& rank) {
  if (rank.rank != 1) return rank.join();
  // Where each rank's device is comes first: 64 bytes of host and 32 of bus.
  std::array<std::byte, 96> place{};
  place.fill(std::byte{1});
  gather_from_ranks(place, *rank.control, *rank.device, "devices of the ranks");
  std::array<std::byte, 128> id;
  rank.control->broadcast(id.data(), id.size(), 0, Traffic::control, "id of NCCL");
  rank.finish();
  std::this_thread::sleep_for(std::chrono::seconds(60));
}

// The lane's later operations do not start, and are not what is named.
void never_arrive(Rank& rank) {
  rank.join();
  rank.gather(10, "h.0");
  if (rank.rank == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
  rank.enqueue_gather(10, "h.3");
  rank.enqueue_gather(10, "h.4");
  rank.finish();
  std::printf("went on with data that never came\n");
}

// Work that the lane still has to do is no wait for other ranks.
void be_slow_before_a_gather(Rank& rank) {
  rank.join();
  rank.device->enqueue(Lane::communicate, "slow",
                       [] { std::this_thread::sleep_for(std::chrono::seconds(4)); });
  rank.gather(10, "h.0");
}

void gather_for_a_while(Rank& rank) {
  rank.join();
  if (rank.rank == 1) std::this_thread::sleep_for(std::chrono::seconds(5));
  rank.gather(10, "h.5");
}

void disagree_about_sizes(Rank& rank) {
  rank.join();
  rank.comm->broadcast(rank.device->arena(), rank.rank == 0 ? 10 : 20, 0, Traffic::control, "h.4");
  rank.finish();
}

void disagree_about_calls(Rank& rank) {
  rank.join();
  if (rank.rank == 0)
    rank.comm->broadcast(rank.device->arena(), 10, 0, Traffic::control, "h.4");
  else
    rank.enqueue_gather(10, "h.4");
  rank.finish();
}

// The others are within a gather when rank 1 gives up.
void fail_alone(Rank& rank) {
  rank.join();
  rank.gather(10, "h.0");
  if (rank.rank == 1) throw DoesNotFit("rank 1 met an error of its own");
  rank.gather(10, "h.1");
}

// Every rank's device fails while the communicator still has work.
void fail_on_the_device(Rank& rank) {
  rank.join();
  rank.device->enqueue(Lane::communicate, "fail", [] {
    std::this_thread::sleep_for(std::chrono::seconds(1));  // every rank has enqueued its gather by then
    throw DoesNotFit("each rank met the same error");
  });
  rank.gather(10, "h.0");
}

const std::map<std::string, std::function<void(Rank&)>> scenarios = {
    {"nothing", nothing},
    {"killed", die_in_a_gather},
    {"stopped", stop_in_a_gather},
    {"never_joins", never_join},
    {"never_arrives", never_arrive},
    {"slow_lane", be_slow_before_a_gather},
    {"waits", gather_for_a_while},
    {"different_sizes", disagree_about_sizes},
    {"different_calls", disagree_about_calls},
    {"fails_alone", fail_alone},
    {"device_fails", fail_on_the_device},
};

int run(const std::string& scenario, double timeout_seconds) {
  try {
    Rank rank(timeout_seconds);
    scenarios.at(scenario)(rank);
    return 0;
  } catch (const DoesNotFit& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  return headrace::run(argv[1], argc > 2 ? std::atof(argv[2]) : 30.0);
}
