#include "aio/uring.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "aio/uring_refusal.h"
#include "headrace/errors.h"

namespace headrace::aio {

// [Note: task work] With DEFER_TASKRUN the kernel finishes requests only inside our own io_uring_enter that
// asks for events: the computation's cores get no interrupts for it. All our waiting is submit_and_wait,
// which asks. It needs SINGLE_ISSUER, hence the ring starts disabled and belongs to the thread that enables
// it.
Uring::Uring(std::uint32_t entries) {
  constexpr unsigned best = IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
  int code = set_up(entries, best);
  starts_disabled_ = code == 0;
  if (code == EINVAL) code = set_up(entries, 0);  // before Linux 6.1
  if (code != 0) throw UringRefused(code);

  const std::unique_ptr<io_uring_probe, void (*)(io_uring_probe*)> probe(io_uring_get_probe_ring(&ring_),
                                                                         io_uring_free_probe);
  if (!probe || !io_uring_opcode_supported(probe.get(), IORING_OP_READ) ||
      !io_uring_opcode_supported(probe.get(), IORING_OP_WRITE)) {
    io_uring_queue_exit(&ring_);
    throw UringRefused(ENOSYS);
  }
}

// The kernel counts the locked pages of a closed ring until it has taken the ring apart, some time later:
// with a small limit, a ring that replaces another has to be patient.
int Uring::set_up(std::uint32_t entries, unsigned flags) {
  constexpr int max_tries = 50;
  int code = try_set_up(entries, flags);
  for (int tries = 1; code == ENOMEM && tries < max_tries; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    code = try_set_up(entries, flags);
  }
  return code;
}

// liburing answers a negated errno value and leaves errno alone.
int Uring::try_set_up(std::uint32_t entries, unsigned flags) {
  io_uring_params params{};
  params.flags = flags;
  return -io_uring_queue_init_params(entries, &ring_, &params);
}

Uring::~Uring() {
  io_uring_queue_exit(&ring_);
}

void Uring::attach_to_this_thread() {
  if (!starts_disabled_) return;
  // liburing 2.3 declares io_uring_enable_rings and does not export it.
  const auto result =
      ::syscall(__NR_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
  HEADRACE_CHECK(result == 0, "io_uring_register(ENABLE_RINGS): {}", std::strerror(errno));
}

io_uring_sqe* Uring::next_sqe() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  HEADRACE_CHECK(sqe != nullptr, "more io_uring requests than the queue depth");
  return sqe;
}

// What was not submitted stays in the ring for the next call.
void Uring::submit_and_wait() {
  const int result = io_uring_submit_and_wait(&ring_, 1);
  const bool passing = result == -EINTR || result == -EAGAIN || result == -EBUSY;
  HEADRACE_CHECK(result >= 0 || passing, "io_uring_enter: {}", std::strerror(-result));
}

}  // namespace headrace::aio
