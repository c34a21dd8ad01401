#include "src/comm/mpi/mpi_world.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <thread>

#include "headrace/communicator.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;

std::timed_mutex turn;
thread_local bool has_turn = false;

// Whether every rank leaves too; a failing rank asks for a short time only.
bool all_ranks_leave(bool failing) {
  constexpr auto grace = std::chrono::seconds(2);
  constexpr auto poll = std::chrono::milliseconds(1);
  const auto give_up = Clock::now() + grace;
  MPI_Request barrier = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &barrier) != MPI_SUCCESS) return false;
  for (int done = 0;;) {
    if (MPI_Test(&barrier, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done != 0) return true;
    if (failing && Clock::now() > give_up) return false;
    std::this_thread::sleep_for(poll);
  }
}

// [Note: leaving]. Registered with on_exit, which tells the exit status.
void leave_mpi(int status, void*) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  if (all_ranks_leave(status != 0)) {
    MPI_Finalize();
    return;
  }
  std::cout.flush();
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, status != 0 ? status : 1);
}

// Ends this process when it is not destroyed in time: MPI_Init has no time-out of its own.
class InitWatchdog {
 public:
  explicit InitWatchdog(double seconds) : thread_([this, seconds] { watch(seconds); }) {}
  ~InitWatchdog() {
    {
      const std::lock_guard lock(mutex_);
      initialised_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  void watch(double seconds) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return initialised_; }))
      return;
    std::fprintf(stderr,
                 "headrace: rank %d waited %.3g s in MPI_Init for the other ranks: one is dead or has not "
                 "started. The job "
                 "ends.\n",
                 launch_info().rank, seconds);
    std::_Exit(1);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool initialised_ = false;
  std::thread thread_;
};

// Host memory alone goes through MPI, from functions in which a GPU's runtime must not be called: an MPI that
// asks it of what kind a buffer is would do so. What the user has set stays.
void leave_devices_alone() {
  ::setenv("OMPI_MCA_opal_cuda_support", "0", 0);
  ::setenv("OMPI_MCA_accelerator", "null", 0);
  ::setenv("UCX_MEMTYPE_CACHE", "n", 0);
}

void require_launched_size() {
  int size = 1;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  const LaunchInfo launched = launch_info();
  if (size == launched.size) return;
  throw UsageError(
      fmt::format("the launcher ({}) started {} ranks but MPI sees {}: the launcher does not start ranks of "
                  "this MPI library. "
                  "Use the mpirun of the same package (Debian: openmpi-bin).",
                  launched.launcher, launched.size, size));
}

}  // namespace

MpiTurn::MpiTurn() {
  turn.lock();
  has_turn = true;
}

MpiTurn::~MpiTurn() {
  has_turn = false;
  turn.unlock();
}

std::string mpi_error_text(int result) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  return {text, static_cast<std::size_t>(length)};
}

// Another lane may be in MPI, for good where that is what is wrong.
void end_job(std::string_view what) {
  constexpr auto patience = std::chrono::seconds(1);
  if (!has_turn) (void)turn.try_lock_for(patience);
  const std::string line = fmt::format("headrace: rank {} {}. The job ends.\n", launch_info().rank, what);
  std::fputs(line.c_str(), stderr);
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

void check_mpi(int result, std::string_view call) {
  if (result != MPI_SUCCESS) end_job(fmt::format("failed in {}: {}", call, mpi_error_text(result)));
}

void ensure_mpi(double timeout_seconds) {
  int initialised = 0;
  MPI_Initialized(&initialised);
  if (initialised != 0) return;
  int provided = 0;
  leave_devices_alone();
  {
    const InitWatchdog watchdog(timeout_seconds);
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  }
  ::on_exit(leave_mpi, nullptr);
  if (provided < MPI_THREAD_SERIALIZED)
    throw UsageError(
        "this MPI library was built without thread support (MPI_THREAD_SERIALIZED). Install Debian's "
        "OpenMPI.");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  require_launched_size();
}

}  // namespace headrace
