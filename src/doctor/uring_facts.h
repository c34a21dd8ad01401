// The kernel, and what it allows of io_uring.
#pragma once

#include <string>
#include <vector>

#include "headrace/doctor.h"
#include "headrace/io_probe.h"
#include "headrace/machine_files.h"
#include "src/doctor/memory_facts.h"

namespace headrace::doctor {

struct UringFacts {
  std::string kernel;    // "6.1.0-18-amd64"
  std::string disabled;  // kernel.io_uring_disabled; empty where there is no such setting
  UringProbe probe;
  MemoryLock lock;
};
UringFacts read_uring(const MachineFiles& files, UringProbe probe, const MemoryLock& lock);

// Whether a release like "6.1.0-18-amd64" is this version or a later one.
bool at_least(const std::string& release, int major, int minor);

std::vector<Finding> findings_of(const UringFacts& facts);
nlohmann::ordered_json to_json(const UringFacts& facts);

}  // namespace headrace::doctor
