// The parts of resolve_settings, each of which derives or checks what belongs together.
#pragma once

#include <string>
#include <vector>

#include "src/train/settings.h"

namespace headrace {

// Of DeepSpeed's `scheduler` section, or of Headrace's own settings.
void resolve_scheduler_peak(Settings& settings);
ScheduleOptions resolve_schedule(const Settings& settings);
Json scheduler_section(const DeepSpeedScheduler& scheduler);

// Where states live: folders, blocks and what they need of each other.
void resolve_parameter_path(Settings& settings);
void check_placement(const Settings& settings);
void check_swap_paths(const Settings& settings);
void check_swap_block(const Settings& settings);
// DeepSpeed gives these in elements, often far above any model's size.
void resolve_element_counts(Settings& settings, const std::vector<UnitSpec>& units);

// As given: what follows from the world size is left out, so that the text means the same with any number of
// ranks.
std::string print_config(const Settings& settings);
// What was accepted and changes nothing, or less than it may seem.
std::vector<std::string> notes(const Settings& settings, UnusedKeys unused, const ScheduleOptions& schedule);

}  // namespace headrace
