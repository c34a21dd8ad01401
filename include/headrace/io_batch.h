// Small transfers that go to the kernel together: one system call, and one call of the device, for several.
//
//   const IoBatch batch(engine);
//   for (...) tickets.push_back(engine.submit(...));   // or a loop that waits for one and submits the next
//
// While it lives, what its thread submits to the engine may be kept back until the thread waits for a
// transfer that has not ended or asks done() of one, a quarter of the queue depth is kept back, or the batch
// ends. So it belongs around submissions that follow one another closely: not around computation, nor around
// a wait for another thread that waits for one of these transfers. Order, results and errors stay as they are
// without. Batches nest; one belongs to one thread, and the engine outlives it. The thread pool keeps nothing
// back.
#pragma once

#include "headrace/io_engine.h"

namespace headrace {

class [[nodiscard]] IoBatch {
 public:
  explicit IoBatch(IoEngine& engine);
  IoBatch(const IoBatch&) = delete;
  IoBatch& operator=(const IoBatch&) = delete;
  ~IoBatch();

  // The calling thread has one for this engine.
  static bool is_open(const IoEngine& engine);

 private:
  IoEngine& engine_;
  const IoBatch* const outer_;
};

}  // namespace headrace
