// What an open store does about pins. See [Note: pins in several folders] in format.h.
#include <fmt/ranges.h>

#include <algorithm>

#include "headrace/errors.h"
#include "headrace/log.h"
#include "swap/versioned_store.h"

namespace headrace::swap {

namespace {

auto find_pin(auto& pins, const std::string& name) {
  return std::ranges::find(pins, name, &Pin::name);
}

}  // namespace

std::string VersionedStore::names_of_pins() const {
  std::vector<std::string> names;
  for (const Pin& pin : parts_.pins) names.push_back(pin.name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::vector<SwapPin> VersionedStore::pins() const {
  std::vector<SwapPin> pins;
  for (const Pin& pin : parts_.pins) pins.push_back({pin.name, pin.record.commit});
  return pins;
}

void VersionedStore::pin(const std::string& name) {
  check_writable();
  HEADRACE_CHECK(written_.empty() && parts_.history.newest, "{} is pinned in the middle of a step",
                 this->name());
  check_pin_name(name);
  if (find_pin(parts_.pins, name) != parts_.pins.end())
    throw UsageError(fmt::format("the swap store in {} has a pinned version {} already. Give another name.",
                                 this->name(), name));
  if (parts_.pins.size() >= most_pins())
    throw UsageError(
        fmt::format("the swap store in {} was made for {} pinned versions, and all are used: {}. Release one "
                    "of them (`headrace checkpoint release`), or make the store for more.",
                    this->name(), most_pins(), names_of_pins()));
  stripes_->group.check_present("its last commit is not pinned");
  parts_.pins.push_back({name, *parts_.history.newest});
  try {
    stripes_->group.write_pin(parts_.pins.back());
  } catch (...) {
    take_back_pin(name);
    throw;
  }
}

// What cannot be taken back may be found later: its extents stay reserved.
void VersionedStore::take_back_pin(const std::string& name) {
  try {
    unpin(name);
  } catch (const std::exception& error) {
    log_warning(
        fmt::format("the version {} was not pinned, and its file may be left: {}", name, error.what()));
  }
}

void VersionedStore::unpin(const std::string& name) {
  check_writable();
  const auto pin = find_pin(parts_.pins, name);
  if (pin == parts_.pins.end()) return;
  stripes_->group.remove_pin(name);
  parts_.pins.erase(pin);
}

const Pin& VersionedStore::pin_called(const std::string& name) const {
  const auto pin = find_pin(parts_.pins, name);
  if (pin == parts_.pins.end())
    throw UsageError(fmt::format("the swap store in {} has no pinned version {}; it has {}.", this->name(),
                                 name, names_of_pins()));
  return *pin;
}

void VersionedStore::position_at_pin(const std::string& name) {
  HEADRACE_CHECK(parts_.read_only, "{} is positioned at a pin while it is written", this->name());
  const CommitRecord record = pin_called(name).record;
  working_ = record.table;
  parts_.history = {std::nullopt, record};
}

void VersionedStore::check_pin(const std::string& name) {
  if (checked_pin_ == name) return;
  check_whole(pin_called(name).record);
  checked_pin_ = name;
}

// Its data is flushed and none of its extents is free: as in commit(), a record is all that is written.
void VersionedStore::go_back_to_pin(const std::string& name) {
  check_writable();
  HEADRACE_CHECK(written_.empty(), "{} goes back in the middle of a step", this->name());
  check_pin(name);
  CommitRecord record = pin_called(name).record;
  CommitHistory& history = parts_.history;
  stripes_->group.check_present("it does not go back");
  record.sequence = history.newest->sequence + 1;
  stripes_->group.append_commit(record, history);
  history.superseded = std::move(history.newest);
  history.newest = std::move(record);
  working_ = history.newest->table;
}

}  // namespace headrace::swap
