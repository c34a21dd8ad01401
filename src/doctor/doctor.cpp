#include "headrace/doctor.h"

#include <cstdlib>

#include "headrace/io_probe.h"
#include "headrace/locality.h"
#include "src/doctor/cpu_facts.h"
#include "src/doctor/memory_facts.h"
#include "src/doctor/parallel_facts.h"
#include "src/doctor/path_facts.h"
#include "src/doctor/thread_facts.h"
#include "src/doctor/uring_facts.h"

namespace headrace {
namespace {

// The facts and the findings of one part.
template <class Facts>
void add(DoctorReport& report, const Facts& facts) {
  report.machine.update(doctor::to_json(facts));
  for (Finding& finding : doctor::findings_of(facts)) report.findings.push_back(std::move(finding));
}

std::vector<doctor::PathFacts> read_paths(const MachineFiles& files, const std::vector<std::string>& paths) {
  const std::vector<Mount> mounts = read_mounts(files.root());
  std::vector<doctor::PathFacts> all;
  for (const std::string& path : paths) all.push_back(read_path(files, mounts, doctor::probe_path(path)));
  find_shared_space(all);
  return all;
}

void add_paths(DoctorReport& report, const std::vector<doctor::PathFacts>& all, bool several_nodes) {
  report.machine["swap_paths"] = nlohmann::ordered_json::array();
  for (const doctor::PathFacts& facts : all) {
    report.machine["swap_paths"].push_back(to_json(facts));
    report.paths_usable = report.paths_usable && facts.usable();
    for (Finding& finding : findings_of(facts, several_nodes)) report.findings.push_back(std::move(finding));
  }
  for (Finding& finding : shared_drives(all)) report.findings.push_back(std::move(finding));
}

}  // namespace

DoctorReport examine_machine(const std::vector<std::string>& swap_paths) {
  const MachineFiles files;
  const doctor::MemoryLock lock = doctor::read_memory_lock(files);
  const CpuLimits cpus = read_cpu_limits();
  const std::vector<NumaNode> nodes = numa_nodes();
  const std::vector<doctor::PathFacts> paths = read_paths(files, swap_paths);
  const char* search_path = std::getenv("PATH");
  DoctorReport report;
  report.machine = nlohmann::ordered_json::object();
  add(report, doctor::read_cpu(files, cpus, nodes));
  add(report, doctor::read_memory(files, lock, devices_behind(paths)));
  add(report, doctor::read_uring(files, probe_uring(), lock));
  add(report, doctor::read_threads(files, cpus.affinity_cpus));
  add(report, doctor::read_parallel(files, search_path == nullptr ? "" : search_path));
  add_paths(report, paths, nodes.size() > 1);
  return report;
}

}  // namespace headrace
