// Finds one line of what the doctor says.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "headrace/doctor.h"

namespace headrace::doctor {

inline const Finding& line(const std::vector<Finding>& findings, const std::string& what) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& finding) { return finding.what == what; });
  if (found == findings.end()) throw std::out_of_range("there is no line " + what);
  return *found;
}

inline bool has_line(const std::vector<Finding>& findings, const std::string& what) {
  return std::any_of(findings.begin(), findings.end(),
                     [&](const Finding& finding) { return finding.what == what; });
}

inline bool every_limit_has_a_remedy(const std::vector<Finding>& findings) {
  return std::all_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return !finding.value.empty() && (finding.status == FindingStatus::ok || !finding.advice.empty());
  });
}

}  // namespace headrace::doctor
