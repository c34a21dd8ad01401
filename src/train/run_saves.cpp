#include "src/train/run_saves.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "headrace/log.h"

namespace headrace {
namespace {

constexpr double noticed = 0.1;  // seconds

}  // namespace

bool RunSaves::is_due(bool end) const {
  const std::uint64_t every = session_.options.checkpoint.every;
  return end || (every > 0 && session_.state.iteration % every == 0);
}

void RunSaves::after_step(bool end) {
  if (session_.checkpointer == nullptr) return;
  collect(false);
  if (!is_due(end)) return;
  if (outcome_.last_loss && !std::isfinite(*outcome_.last_loss)) {
    if (session_.rank() == 0)
      log_warning(fmt::format("step {} is not saved: its loss is not finite", session_.state.iteration));
  } else if (session_.options.checkpoint.asynchronous) {
    begin();
  } else {
    save();
  }
  if (end) collect(true);
}

template <class Save>
void RunSaves::try_to(std::uint64_t step, const Save& save) {
  try {
    save();
  } catch (const Error& error) {  // of all ranks
    outcome_.save_failure = error.what();
    if (session_.rank() == 0)
      log_warning(
          fmt::format("step {} was not saved: {} What was saved before is as it was.", step, error.what()));
  }
}

void RunSaves::tell(const Checkpointer::Saved& saved) {
  outcome_.checkpoint = saved.path;
  outcome_.save_failure.clear();
  if (session_.rank() != 0) return;
  if (!saved.problem.empty()) log_warning(fmt::format("saved {}, but {}", saved.path, saved.problem));
  log_info(fmt::format("saved {}: {} in {:.1f} s{}", saved.path, format_bytes(saved.bytes), saved.seconds,
                       saved.held_up_seconds < noticed
                           ? ""
                           : fmt::format(", of which an update waited {:.1f} s (more --save-buffers, less)",
                                         saved.held_up_seconds)));
}

void RunSaves::save() {
  try_to(session_.state.iteration, [&] { tell(session_.checkpointer->save(session_.state)); });
}

void RunSaves::begin() {
  const auto start = std::chrono::steady_clock::now();
  const bool waits = session_.checkpointer->saving();
  const std::uint64_t before = begun_;
  collect(true);
  if (waits && session_.rank() == 0 && seconds_since(start) > noticed)
    log_info(fmt::format("step {} waited {:.1f} s for the save of step {}: one is written at a time",
                         session_.state.iteration, seconds_since(start), before));
  begun_ = session_.state.iteration;
  session_.checkpointer->begin(session_.state);
}

void RunSaves::collect(bool wait) {
  if (!session_.checkpointer->ended(wait)) return;
  try_to(begun_, [&] {
    if (const auto saved = session_.checkpointer->result(wait)) tell(*saved);
  });
}

// The other ranks, if they are still there, wait for this one in a step: their own time-out is the limit, and
// what this one's device has not handed over yet, none of theirs can.
void RunSaves::end_failed(const std::exception& failure) {
  if (session_.checkpointer == nullptr || !session_.checkpointer->saving()) return;
  const bool alone = session_.options.launch.size == 1;
  if (!alone && session_.options.engine.optimizer_tier == Tier::device) return;
  log_warning(fmt::format("{} The checkpoint of step {} is written to its end before the run ends.",
                          failure.what(), begun_));
  constexpr double longest_share = 0.5;
  const auto start = std::chrono::steady_clock::now();
  try {
    while (!session_.checkpointer->ended(false)) {
      if (!alone && seconds_since(start) > longest_share * session_.options.timeout_seconds) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (const auto saved = session_.checkpointer->result(true)) tell(*saved);
  } catch (const Error& error) {
    log_warning(fmt::format("step {} was not saved: {}", begun_, error.what()));
  }
}

}  // namespace headrace
