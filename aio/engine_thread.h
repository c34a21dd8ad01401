// Threads of an engine: named, and deaf to asynchronous signals, so that handlers run on the application's
// threads.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>

namespace headrace::aio {

// Blocks signals for a scope; threads started in it inherit that. Faults of the thread itself stay
// deliverable.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

template <class Body>
std::thread start_engine_thread(Body body) {
  const SignalsBlocked blocked;
  std::thread thread(std::move(body));
  pthread_setname_np(thread.native_handle(), "headrace-io");
  return thread;
}

}  // namespace headrace::aio
