// How an engine goes back to a version that its swap store keeps.
#include <algorithm>

#include "headrace/errors.h"
#include "src/zero/engine_impl.h"

namespace headrace {

SwapStore* Engine::swap_store() {
  return impl_->states ? impl_->states->swap() : nullptr;
}

namespace {

// On every rank before any goes back: where one cannot, all stay at the step that they have.
void require_whole_everywhere(SwapStore& swap, const std::string& pin, EngineContext& context) {
  std::string problem;
  try {
    swap.check_pin(pin);
  } catch (const Error& error) {
    problem = error.what();
  }
  const auto broken =
      gather_from_ranks(problem.empty() ? 0 : 1, context.communicator, context.device, "pinned version");
  const auto first = std::ranges::find(broken, 1);
  if (first == broken.end()) return;
  throw CorruptData(
      fmt::format("the version {} in the swap store of rank {} is not whole, and nothing was changed{} Go on "
                  "from step {} "
                  "with --resume swap, or load another checkpoint.",
                  pin, first - broken.begin(), problem.empty() ? "." : fmt::format(": {}", problem),
                  swap.commits().back().step));
}

}  // namespace

TrainingState Engine::go_back(const std::string& pin, const StateCheck& accept) {
  impl_->allocate();
  impl_->states->open_swap();
  SwapStore& swap = *impl_->states->swap();
  const std::vector<SwapPin> pins = swap.pins();
  const auto found = std::ranges::find(pins, pin, &SwapPin::name);
  SwapCommit commit;
  if (found != pins.end()) commit = found->commit;
  const auto missing = gather_from_ranks(found == pins.end() ? 1 : 0, impl_->context.communicator,
                                         impl_->context.device, "pinned version");
  for (std::size_t rank = 0; rank < missing.size(); ++rank)
    if (missing[rank] != 0)
      throw UsageError(fmt::format(
          "the swap store of rank {} no longer keeps the version {}. Load another checkpoint, or continue "
          "with --resume swap.",
          rank, pin));
  impl_->require_same_run(commit);
  require_whole_everywhere(swap, pin, impl_->context);
  TrainingState state = decode_training_state(commit.metadata, impl_->steps_applied);
  if (impl_->loss_scaler) state.loss_scale = impl_->loss_scaler->resumed(state.loss_scale);
  if (accept) accept(state);
  impl_->create_scratch();
  swap.go_back_to_pin(pin);
  // No rank may overwrite what was newest until all have gone back.
  if (impl_->context.communicator.size() > 1) impl_->context.communicator.barrier("go back");
  impl_->go_on(state);
  return state;
}

}  // namespace headrace
