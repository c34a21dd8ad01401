#include "src/zero/update_plan.h"

#include <utility>

#include "headrace/errors.h"

namespace headrace {

std::string_view name_of(UpdateAction action) {
  switch (action) {
    case UpdateAction::read_state:
      return "read_state";
    case UpdateAction::fetch_gradient:
      return "fetch_gradient";
    case UpdateAction::join:
      return "join";
    case UpdateAction::update:
      return "update";
    case UpdateAction::store_parameters:
      return "store_parameters";
    case UpdateAction::write_state:
      return "write_state";
    case UpdateAction::reclaim_state:
      return "reclaim_state";
  }
  return "?";
}

namespace {

// Appends steps; blocks by their place in the order of the update.
class PlanWriter {
 public:
  explicit PlanWriter(const UpdatePlanOptions& options) : options_(options) {}

  void emit(UpdateAction action, std::uint32_t i) { plan_.push_back({action, position(i)}); }
  void read(std::uint32_t i) {
    if (!options_.states_on_nvme || i >= options_.blocks) return;
    if (i >= options_.buffers) emit(UpdateAction::reclaim_state, i - options_.buffers);
    emit(UpdateAction::read_state, i);
  }
  void fetch(std::uint32_t first, std::uint32_t end) {
    if (!options_.move_gradient) return;
    for (std::uint32_t i = first; i < end; ++i) emit(UpdateAction::fetch_gradient, i);
  }
  // The end of the region that starts at `i`.
  std::uint32_t region_end(std::uint32_t i) const {
    std::uint32_t end = i;
    while (end < options_.blocks && region(end) == region(i)) ++end;
    return end;
  }
  std::vector<UpdateStep> take() { return std::move(plan_); }

 private:
  std::uint32_t position(std::uint32_t i) const { return options_.reversed ? options_.blocks - 1 - i : i; }
  std::uint32_t region(std::uint32_t i) const { return position(i) / options_.region_blocks; }

  const UpdatePlanOptions& options_;
  std::vector<UpdateStep> plan_;
};

}  // namespace

std::vector<UpdateStep> plan_update(const UpdatePlanOptions& options) {
  HEADRACE_CHECK(!options.states_on_nvme || (options.buffers >= 3 && options.region_blocks == 1),
                 "{} state buffers, regions of {}", options.buffers, options.region_blocks);
  HEADRACE_CHECK(options.region_blocks > 0, "regions of no block");
  const std::uint32_t blocks = options.blocks, buffers = options.buffers, ahead = buffers / 2;
  PlanWriter plan(options);
  for (std::uint32_t i = 0; i < ahead; ++i) plan.read(i);
  plan.fetch(0, plan.region_end(0));
  for (std::uint32_t first = 0, end; first < blocks; first = end) {
    end = plan.region_end(first);
    for (std::uint32_t i = first; i < end; ++i) plan.read(i + ahead);
    plan.fetch(end, plan.region_end(end));
    for (std::uint32_t i = first; i < end; ++i) plan.emit(UpdateAction::join, i);
    plan.emit(UpdateAction::update, end - 1);
    for (std::uint32_t i = first; i < end; ++i) {
      if (options.move_parameters) plan.emit(UpdateAction::store_parameters, i);
      if (options.states_on_nvme) plan.emit(UpdateAction::write_state, i);
    }
  }
  if (options.states_on_nvme)
    for (std::uint32_t i = blocks > buffers ? blocks - buffers : 0; i < blocks; ++i)
      plan.emit(UpdateAction::reclaim_state, i);
  return plan.take();
}

std::string to_string(const std::vector<UpdateStep>& plan) {
  std::string text;
  for (const UpdateStep& step : plan) text += fmt::format("{} {}\n", name_of(step.action), step.block);
  return text;
}

}  // namespace headrace
