#include "src/comm/mpi/polling.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "src/comm/mpi/mpi_world.h"

namespace headrace {
namespace {

[[noreturn]] void end_job(const OperationName& name, double timeout_seconds) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fprintf(stderr,
               "headrace: rank %d waited %.0f s in %s #%llu of \"%s\" for another rank, which is dead or "
               "took a different "
               "path. The job ends; raise --timeout if the ranks are only slow.\n",
               rank, timeout_seconds, name.operation, static_cast<unsigned long long>(name.sequence),
               name.label.c_str());
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

}  // namespace

void wait_for(std::vector<MPI_Request>& requests, const OperationName& name, double timeout_seconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_seconds);
  constexpr int yields = 200;  // a peer on another core usually answers within this
  constexpr auto longest_sleep = std::chrono::microseconds(200);
  auto sleep = std::chrono::microseconds(5);
  for (int attempt = 0;; ++attempt) {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
              name.operation);
    if (done != 0) return;
    if (attempt < yields) {
      ::sched_yield();
      continue;
    }
    if (Clock::now() > deadline) end_job(name, timeout_seconds);
    std::this_thread::sleep_for(sleep);
    sleep = std::min(sleep * 2, longest_sleep);
  }
}

}  // namespace headrace
