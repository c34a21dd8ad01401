// The processors: instructions, how many, which of them this process may use, and how they lie.
#pragma once

#include <string>
#include <vector>

#include "headrace/doctor.h"
#include "headrace/isa.h"
#include "headrace/locality.h"
#include "headrace/machine_files.h"
#include "headrace/topology.h"

namespace headrace::doctor {

struct CpuFacts {
  std::string model;
  Isa widest = Isa::scalar, used = Isa::scalar;
  std::string isa_problem;               // what HEADRACE_ISA asks for and cannot have
  std::vector<std::string> bf16_with;    // instructions that multiply bf16: "avx512_bf16", "amx_bf16"
  std::string present, online, offline;  // lists like "0-7"; empty where /sys does not say
  CpuLimits limits;
  std::vector<NumaNode> nodes;
};
// `limits` and `nodes` are of base; the rest is read here. The instructions are always this machine's.
CpuFacts read_cpu(const MachineFiles& files, const CpuLimits& limits, std::vector<NumaNode> nodes);

// How many numbers a list like "0-3,8" holds.
int count_of(const std::string& list);

std::vector<Finding> findings_of(const CpuFacts& facts);
nlohmann::ordered_json to_json(const CpuFacts& facts);

}  // namespace headrace::doctor
