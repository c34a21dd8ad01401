#include "src/zero/update_plan.h"

#include "headrace/errors.h"

namespace headrace {

std::string_view name_of(UpdateAction action) {
  switch (action) {
    case UpdateAction::read_state:
      return "read_state";
    case UpdateAction::fetch_gradient:
      return "fetch_gradient";
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

std::vector<UpdateStep> plan_update(const UpdatePlanOptions& options) {
  HEADRACE_CHECK(!options.states_on_nvme || options.buffers >= 3, "{} state buffers", options.buffers);
  const std::uint32_t blocks = options.blocks, buffers = options.buffers, ahead = buffers / 2;
  std::vector<UpdateStep> plan;
  const auto emit = [&](UpdateAction action, std::uint32_t position) {
    plan.push_back({action, options.reversed ? blocks - 1 - position : position});
  };
  const auto read = [&](std::uint32_t i) {
    if (!options.states_on_nvme || i >= blocks) return;
    if (i >= buffers) emit(UpdateAction::reclaim_state, i - buffers);
    emit(UpdateAction::read_state, i);
  };
  const auto fetch = [&](std::uint32_t i) {
    if (options.move_gradient && i < blocks) emit(UpdateAction::fetch_gradient, i);
  };
  for (std::uint32_t i = 0; i < ahead; ++i) read(i);
  fetch(0);
  for (std::uint32_t i = 0; i < blocks; ++i) {
    read(i + ahead);
    fetch(i + 1);
    emit(UpdateAction::update, i);
    if (options.move_parameters) emit(UpdateAction::store_parameters, i);
    if (options.states_on_nvme) emit(UpdateAction::write_state, i);
  }
  if (options.states_on_nvme)
    for (std::uint32_t i = blocks > buffers ? blocks - buffers : 0; i < blocks; ++i)
      emit(UpdateAction::reclaim_state, i);
  return plan;
}

std::string to_string(const std::vector<UpdateStep>& plan) {
  std::string text;
  for (const UpdateStep& step : plan) text += fmt::format("{} {}\n", name_of(step.action), step.block);
  return text;
}

}  // namespace headrace
