// io_uring, driven by one thread that owns the ring: any thread may submit, a submitting thread may end while
// its transfers are in flight, and no lock is held around the kernel.
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "aio/engine_thread.h"
#include "aio/queued_engine.h"
#include "aio/uring.h"
#include "headrace/errors.h"

namespace headrace {
namespace aio {
namespace {

constexpr std::uint64_t wake_up =
    ~std::uint64_t{0};  // user_data of the read of the eventfd; others are slot numbers

class UringEngine final : public QueuedEngine {
 public:
  UringEngine(const IoEngineOptions& options, RequestHook hook) : QueuedEngine(options, std::move(hook)) {
    thread_.reset(new Thread(options.queue_depth, *this));
  }
  ~UringEngine() override {
    if (in_forked_child()) (void)thread_.release();  // the ring and its memory belong to the parent
  }

  std::string_view name() const override { return "io_uring"; }

 private:
  // The thread and all it owns.
  class Thread {
   public:
    Thread(std::uint32_t depth, UringEngine& engine);
    ~Thread();
    void wake_if_asleep();

   private:
    void run();
    void arm_wake_up();
    void issue_ready();
    void issue(Request request, Bytes bytes);
    void on_completion(std::uint64_t user_data, std::int32_t result);
    void ring_bell();

    UringEngine& engine_;
    Fd bell_;
    Uring ring_;
    std::vector<Request> slots_;  // requests in flight, by user_data
    std::vector<std::uint32_t> free_slots_;
    std::uint64_t bell_count_ = 0;
    bool wake_up_armed_ = false;
    std::atomic<bool> asleep_{false}, stopping_{false};
    std::thread thread_;
  };

  void wake() override { thread_->wake_if_asleep(); }

  std::unique_ptr<Thread> thread_;
};

// The bell blocks: io_uring then polls it, where a non-blocking one would answer EAGAIN at once.
UringEngine::Thread::Thread(std::uint32_t depth, UringEngine& engine)
    : engine_(engine),
      bell_(HEADRACE_MUST(::eventfd(0, EFD_CLOEXEC), "create an eventfd")),
      ring_(depth + 1),
      slots_(depth) {
  for (std::uint32_t slot = depth; slot > 0; --slot) free_slots_.push_back(slot - 1);
  thread_ = start_engine_thread([this] { run(); });
}

UringEngine::Thread::~Thread() {
  stopping_ = true;
  ring_bell();
  thread_.join();
}

void UringEngine::Thread::ring_bell() {
  const std::uint64_t one = 1;
  while (::write(bell_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

// [Note: no lost wake-up] The thread says that it goes to sleep before it looks at the queue for the last
// time; a submitter adds to the queue before it asks whether the thread sleeps. One of the two sees the
// other. With every slot taken the thread is not "asleep": a completion will wake it.
void UringEngine::Thread::wake_if_asleep() {
  if (asleep_.exchange(false)) ring_bell();
}

void UringEngine::Thread::run() {
  ring_.attach_to_this_thread();
  while (true) {
    if (!stopping_) arm_wake_up();
    issue_ready();
    if (!free_slots_.empty()) {
      asleep_ = true;
      issue_ready();
    }
    const bool idle = free_slots_.size() == slots_.size();
    if (idle && !wake_up_armed_) break;  // stopping, and the bell has been answered
    ring_.submit_and_wait();
    asleep_ = false;
    ring_.reap([this](std::uint64_t user_data, std::int32_t result) { on_completion(user_data, result); });
  }
}

void UringEngine::Thread::arm_wake_up() {
  if (std::exchange(wake_up_armed_, true)) return;
  io_uring_sqe* sqe = ring_.next_sqe();
  io_uring_prep_read(sqe, bell_.get(), &bell_count_, sizeof(bell_count_), 0);
  io_uring_sqe_set_data64(sqe, wake_up);
}

void UringEngine::Thread::issue_ready() {
  while (!free_slots_.empty()) {
    auto request = engine_.queue_->try_next();
    if (!request) return;
    const std::int64_t admitted = engine_.admit(*request);
    if (admitted > 0)
      issue(std::move(*request), static_cast<Bytes>(admitted));
    else
      engine_.complete(*request, admitted);
  }
}

void UringEngine::Thread::issue(Request request, Bytes bytes) {
  const Operation& operation = *request.operation;
  io_uring_sqe* sqe = ring_.next_sqe();
  const auto length = static_cast<unsigned>(bytes);
  if (operation.direction == IoDirection::read)
    io_uring_prep_read(sqe, operation.fd, request.address(), length, request.offset());
  else
    io_uring_prep_write(sqe, operation.fd, request.address(), length, request.offset());
  if (request.piece.again > 0)
    sqe->flags |= IOSQE_ASYNC;  // a worker of the kernel may block where we may not
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  io_uring_sqe_set_data64(sqe, slot);
  slots_[slot] = std::move(request);
}

void UringEngine::Thread::on_completion(std::uint64_t user_data, std::int32_t result) {
  if (user_data == wake_up) {
    wake_up_armed_ = false;
    return;
  }
  const auto slot = static_cast<std::uint32_t>(user_data);
  const Request request = std::exchange(slots_[slot], {});
  free_slots_.push_back(slot);
  engine_.complete(request, result);
}

}  // namespace

std::unique_ptr<IoEngine> make_uring_engine(const IoEngineOptions& options, RequestHook hook) {
  return std::make_unique<UringEngine>(options, std::move(hook));
}

}  // namespace aio

std::unique_ptr<IoEngine> make_uring_engine(const IoEngineOptions& options) {
  return aio::make_uring_engine(options, {});
}

}  // namespace headrace
