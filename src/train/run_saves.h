// The checkpoints of a run: when they are saved, and what is said of them.
#pragma once

#include <exception>

#include "src/train/training_loop.h"

namespace headrace {

class RunSaves {
 public:
  RunSaves(Session& session, RunOutcome& outcome) : session_(session), outcome_(outcome) {}
  // Saves where one is due, and always at the `end`, when it waits for what is saved beside the steps. A save
  // that fails is a warning: the next one may succeed. Weights that are lost take no good checkpoint's place.
  void after_step(bool end);
  // A run that fails keeps what was begun, where that can be.
  void end_failed(const std::exception& failure);

 private:
  bool is_due(bool end) const;
  void save();
  void begin();
  void collect(bool wait);
  template <class Save>
  void try_to(std::uint64_t step, const Save& save);
  void tell(const Checkpointer::Saved& saved);

  Session& session_;
  RunOutcome& outcome_;
  std::uint64_t begun_ = 0;  // the step that is being saved beside the others
};

}  // namespace headrace
