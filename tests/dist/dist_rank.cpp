// One rank of a job under mpirun: dist_rank SCENARIO [seconds of time-out]. jobs_test.py says what each must
// end in.
#include <dlfcn.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "headrace/communicator.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

Bytes resident_bytes() {
  std::ifstream file("/proc/self/statm");
  Bytes total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

struct Rank {
  explicit Rank(double timeout_seconds)
      : comm(make_mpi_communicator(*device, {.timeout_seconds = timeout_seconds})),
        ranks(static_cast<std::size_t>(comm->size())) {}
  void finish() { device->host_wait(device->record(Lane::communicate)); }
  void gather(Bytes bytes, std::string_view label) {
    buffer.resize(bytes * ranks);
    comm->all_gather(buffer.data(), std::vector<Bytes>(ranks, bytes), Traffic::all_gather, label);
    finish();
  }

  std::unique_ptr<Device> device = make_cpu_device({.memory_bytes = 4096});
  std::unique_ptr<Communicator> comm;
  std::size_t ranks;
  std::vector<std::byte> buffer;
};

// The counter against the bytes that MPI was given (the preloaded pmpi_count).
void count_bytes(Rank& rank) {
  rank.gather(12345, "h.0");
  rank.gather(3 << 20, "h.1");
  std::vector<std::byte> out(rank.ranks * 1000), in(rank.ranks * 1000);
  std::vector<Communicator::Piece> send, receive;
  for (std::size_t r = 0; r < rank.ranks; ++r) {
    const auto self = static_cast<std::size_t>(rank.comm->rank());
    send.push_back({out.data() + r * 1000, 10 * (self + r)});
    receive.push_back({in.data() + r * 1000, 10 * (self + r)});
  }
  rank.comm->all_to_all(send, receive, Traffic::reduce_scatter, "h.2");
  std::vector<float> few(7, 1.0f), many(1234567, 1.0f);
  rank.comm->all_reduce(std::span(few), Traffic::all_reduce, "few");
  rank.comm->all_reduce(std::span(many), Traffic::all_reduce, "many");
  rank.comm->broadcast(out.data(), 999, 0, Traffic::control, "note");
  rank.comm->barrier("end");
  const TrafficCounters c = rank.comm->counters();
  const Bytes counted = c.all_gather_bytes + c.reduce_scatter_bytes + c.all_reduce_bytes + c.control_bytes;
  const auto mpi_count = [](const char* name) {
    auto* function = reinterpret_cast<std::uint64_t (*)()>(::dlsym(RTLD_DEFAULT, name));
    HEADRACE_CHECK(function != nullptr, "{} is not preloaded", name);
    return function();
  };
  std::printf("counted %llu mpi %llu other %llu\n", static_cast<unsigned long long>(counted),
              static_cast<unsigned long long>(mpi_count("pmpi_sent_bytes")),
              static_cast<unsigned long long>(mpi_count("pmpi_other_calls")));
}

void work_until_killed(Rank& rank) {
  for (int i = 0;; ++i) {
    if (i == 100 && rank.comm->rank() == 1) ::raise(SIGKILL);
    rank.gather(1000, "h.3");
  }
}

void never_arrive(Rank& rank) {
  rank.gather(10, "h.0");
  if (rank.comm->rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
  rank.gather(10, "h.3");
}

void take_different_paths(Rank& rank) {
  rank.gather(10, "h.0");
  if (rank.comm->rank() == 1)
    rank.comm->barrier("extra");
  else
    rank.gather(10, "h.1");
}

void disagree_about_sizes(Rank& rank) {
  std::vector<Bytes> pieces(rank.ranks, 10);
  if (rank.comm->rank() == 0) pieces[1] = 20;
  rank.buffer.resize(100);
  rank.comm->all_gather(rank.buffer.data(), pieces, Traffic::all_gather, "h.4");
  rank.finish();
}

void fail_alone(Rank& rank) {
  rank.gather(10, "h.0");
  if (rank.comm->rank() == 1) throw DoesNotFit("rank 1 met an error of its own");
  rank.gather(10, "h.1");
}

void fail_together(Rank& rank) {
  rank.gather(10, "h.0");
  throw DoesNotFit("each rank met the same error");
}

void measure_memory(Rank& rank) {
  std::printf("resident after start %llu\n", static_cast<unsigned long long>(resident_bytes()));
  for (int i = 0; i < 20; ++i) rank.gather(4 << 20, "large");
  std::printf("resident after gathers %llu of which buffer %llu\n",
              static_cast<unsigned long long>(resident_bytes()),
              static_cast<unsigned long long>(rank.buffer.size()));
}

// One message of more than 2^31 bytes; needs about 5 GiB for two ranks, so no test of the suite asks for it.
void send_more_than_two_gibibytes(Rank& rank) {
  constexpr Bytes bytes = (Bytes{1} << 31) + 4097;
  rank.buffer.assign(bytes, std::byte{rank.comm->rank() == 0});
  rank.comm->broadcast(rank.buffer.data(), bytes, 0, Traffic::control, "huge");
  rank.finish();
  for (const Bytes at : {Bytes{0}, (Bytes{1} << 30) - 1, Bytes{1} << 30, Bytes{1} << 31, bytes - 1})
    HEADRACE_CHECK(rank.buffer[at] == std::byte{1}, "byte {} is wrong", at);
}

const std::map<std::string, std::function<void(Rank&)>> scenarios = {
    {"count", count_bytes},
    {"killed", work_until_killed},
    {"never_arrives", never_arrive},
    {"different_paths", take_different_paths},
    {"different_sizes", disagree_about_sizes},
    {"fails_alone", fail_alone},
    {"fails_together", fail_together},
    {"memory", measure_memory},
    {"huge", send_more_than_two_gibibytes},
    {"nothing", [](Rank&) {}},
};

int run(const std::string& scenario, double timeout_seconds) {
  try {
    if (scenario == "memory")
      std::printf("resident before start %llu\n", static_cast<unsigned long long>(resident_bytes()));
    Rank rank(timeout_seconds);
    scenarios.at(scenario)(rank);
    return 0;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
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
