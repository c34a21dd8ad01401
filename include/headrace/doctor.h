// What this machine offers to a run and what limits it, with what to do about each limit.
//
// Facts are gathered first, as plain values (src/doctor/*_facts.h); pure functions turn them into findings.
// Works for any user and in containers that hide parts of /proc and /sys: what cannot be seen is said to be
// unknown. Writes nothing but a file of a few pages per swap path, which has no name or loses it at once.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace headrace {

enum class FindingStatus : std::uint8_t { ok, note, limit };

struct Finding {
  std::string topic;  // "processor", "swap path /mnt/a"
  std::string what;   // "quota"
  std::string value;
  FindingStatus status = FindingStatus::ok;
  std::string advice = {};  // empty only where there is nothing to do
};

struct DoctorReport {
  nlohmann::ordered_json machine;  // the facts, by name
  std::vector<Finding> findings;   // grouped by topic
  bool paths_usable = true;        // every given path could hold a swap store
};

// Takes up to seconds where a GPU has to be woken. Throws nothing for what the machine lacks.
DoctorReport examine_machine(const std::vector<std::string>& swap_paths);

std::string to_text(const DoctorReport& report);  // at most 96 columns, but for values without a space
std::string to_json(const DoctorReport& report);  // {"machine":{},"findings":[{...}]}

}  // namespace headrace
