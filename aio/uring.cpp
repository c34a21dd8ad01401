#include "aio/uring.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <thread>

#include "aio/aligned_memory.h"
#include "aio/uring_refusal.h"
#include "headrace/errors.h"
#include "headrace/log.h"

namespace headrace::aio {
namespace {

// A signal, memory that is short for now, completions to be taken first: the next call may go well.
int fatal_code(int result) {
  switch (-result) {
    case EINTR:
    case EAGAIN:
    case EBUSY:
    case ENOMEM:
    case ETIME:
      return 0;
    default:
      return result < 0 ? -result : 0;
  }
}

void warn_of_refused_thread(int code) {
  const char* remedy = code == EPERM    ? " Before Linux 5.11 it is kept to administrators."
                       : code == EAGAIN ? " Raise the limit of threads (ulimit -u, pids.max)."
                                        : "";
  warn_once("no SQPOLL", fmt::format("A thread of the kernel that submits (SQPOLL) is refused ({}): "
                                     "submitting by system calls instead.{}",
                                     std::strerror(code), remedy));
}

}  // namespace

Uring::Uring(const Options& options) : polls_(options.poll_completions) {
  int code = set_up(options);
  if (code != 0 && options.poll_submissions) {
    const int refusal = code;
    Options without = options;
    without.poll_submissions = false;
    code = set_up(without);
    if (code == 0) warn_of_refused_thread(refusal);
  }
  if (code != 0) throw UringRefused(code);

  const std::unique_ptr<io_uring_probe, void (*)(io_uring_probe*)> probe(io_uring_get_probe_ring(&ring_),
                                                                         io_uring_free_probe);
  if (!probe || !io_uring_opcode_supported(probe.get(), IORING_OP_READ) ||
      !io_uring_opcode_supported(probe.get(), IORING_OP_WRITE)) {
    io_uring_queue_exit(&ring_);
    throw UringRefused(ENOSYS);
  }
  has_file_table_ = io_uring_register_files_sparse(&ring_, file_places) == 0;
  has_buffer_table_ = io_uring_register_buffers_sparse(&ring_, buffer_places) == 0;
}

// The kernel counts the locked pages of a closed ring until it has taken the ring apart, some time later:
// with a small limit, a ring that replaces another has to be patient.
int Uring::set_up(const Options& options) {
  constexpr int max_tries = 50;
  int code = try_set_up(options);
  for (int tries = 1; code == ENOMEM && tries < max_tries; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    code = try_set_up(options);
  }
  return code;
}

// liburing answers a negated errno value and leaves errno alone.
int Uring::try_set_up(const Options& options) {
  constexpr unsigned idle_milliseconds = 20;
  io_uring_params params{};
  if (options.poll_completions) params.flags |= IORING_SETUP_IOPOLL;
  if (options.poll_submissions) params.flags |= IORING_SETUP_SQPOLL;
  params.sq_thread_idle = idle_milliseconds;
  return -io_uring_queue_init_params(places_of(options), &ring_, &params);
}

// The kernel's thread frees the places of a batch when it has issued all of it; some requests of the batch
// may have ended by then, and others taken their turn.
unsigned Uring::places_of(const Options& options) {
  return options.poll_submissions ? 2 * options.entries : options.entries;
}

// A closed ring is taken apart some time later, and a forked child may still hold it: files and memory are
// let go now.
Uring::~Uring() {
  if (has_file_table_) io_uring_unregister_files(&ring_);
  if (has_buffer_table_) io_uring_unregister_buffers(&ring_);
  io_uring_queue_exit(&ring_);
}

void Uring::try_out() {
  io_uring_prep_nop(next_sqe());
  const int result = io_uring_submit_and_wait(&ring_, 1);
  if (result < 0 && result != -EINTR && result != -EAGAIN) throw UringRefused(-result);
}

int Uring::try_worker(std::chrono::milliseconds at_most) {
  io_uring_sqe* sqe = next_sqe();
  io_uring_prep_nop(sqe);
  sqe->flags |= IOSQE_ASYNC;
  const auto end = std::chrono::steady_clock::now() + at_most;
  const auto answer = answer_to_only_request([&] { return std::chrono::steady_clock::now() < end; });
  return answer ? -*answer : ETIMEDOUT;
}

// Whatever signals come. Empty where the ring broke, or `go_on` ended it, before there was an answer: what
// was asked for may still happen.
template <class GoOn>
std::optional<int> Uring::answer_to_only_request(GoOn go_on) {
  constexpr std::chrono::milliseconds until_looking_up{10};
  std::optional<int> answer;
  for (int code = 0; !answer && code == 0 && go_on();) {
    code = unsubmitted() ? submit() : wait_events(1, until_looking_up);
    if (code != 0 && !withdraw().empty()) throw UringRefused(code);  // the kernel has not got it
    reap([&](std::uint64_t, std::int32_t result) { answer = result; });
  }
  return answer;
}

// A file system without polling says so before it looks at the request. Memory that the drive may still write
// to, whatever became of the ring, is left to it.
bool Uring::can_poll(int fd, Bytes alignment) {
  const Bytes bytes = std::max(alignment, Bytes{4096});
  try {
    AlignedMemory memory = allocate_aligned(bytes, bytes);
    Uring ring({.poll_completions = true});
    io_uring_prep_read(ring.next_sqe(), fd, memory.get(), static_cast<unsigned>(bytes), 0);
    const auto answer = ring.answer_to_only_request([] { return true; });
    if (!answer) (void)memory.release();
    return answer && *answer != -EOPNOTSUPP;
  } catch (const UringRefused&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

io_uring_sqe* Uring::next_sqe() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  HEADRACE_CHECK(sqe != nullptr, "more io_uring requests than the queue depth");
  passed_on_ = false;
  return sqe;
}

int Uring::submit() {
  const int result = io_uring_submit(&ring_);
  passed_on_ = true;
  return fatal_code(result);
}

std::vector<std::uint64_t> Uring::withdraw() {
  std::vector<std::uint64_t> taken;
  io_uring_sq& queue = ring_.sq;
  const unsigned head = io_uring_smp_load_acquire(queue.khead);
  for (unsigned at = head; at != queue.sqe_tail; ++at)
    taken.push_back(queue.sqes[at & queue.ring_mask].user_data);
  queue.sqe_head = queue.sqe_tail = head;
  io_uring_smp_store_release(queue.ktail, head);
  passed_on_ = true;
  return taken;
}

// With SQPOLL the kernel's thread takes them in its own time.
bool Uring::unsubmitted() const {
  return !passed_on_ || ((ring_.flags & IORING_SETUP_SQPOLL) == 0 && io_uring_sq_ready(&ring_) > 0);
}

int Uring::wait_events(std::uint32_t count, std::chrono::nanoseconds at_most) {
  const auto ring = static_cast<unsigned>(ring_.ring_fd);
  if (!bounded_waits()) return fatal_code(io_uring_enter(ring, 0, count, IORING_ENTER_GETEVENTS, nullptr));
  __kernel_timespec time{.tv_sec = 0, .tv_nsec = at_most.count()};
  io_uring_getevents_arg argument{};
  argument.ts = reinterpret_cast<std::uintptr_t>(&time);
  return fatal_code(io_uring_enter2(ring, 0, count, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
                                    reinterpret_cast<sigset_t*>(&argument), sizeof(argument)));
}

int Uring::set_file(std::uint32_t place, int fd) {
  const int result = io_uring_register_files_update(&ring_, place, &fd, 1);
  return result < 0 ? -result : 0;
}

int Uring::set_buffer(std::uint32_t place, std::span<std::byte> memory) {
  const iovec range{memory.data(), memory.size()};
  const __u64 no_tag = 0;
  const int result = io_uring_register_buffers_update_tag(&ring_, place, &range, &no_tag, 1);
  return result < 0 ? -result : 0;
}

}  // namespace headrace::aio
