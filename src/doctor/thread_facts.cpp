#include "src/doctor/thread_facts.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "headrace/cgroup.h"

namespace headrace::doctor {
namespace {

constexpr const char* topic = "threads and files";
constexpr std::uint64_t files_of_a_rank = 256;  // of swap paths, and connections of MPI and NCCL

// The pool, and those that do I/O or launch: of the engine, of MPI, and of the kernel for what blocks.
std::uint64_t threads_of_a_rank(int cpus) {
  return 64 + 2 * static_cast<std::uint64_t>(cpus);
}

CountLimit limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return {};
  const auto count = [](rlim_t value) { return value == RLIM_INFINITY ? unlimited_count : value; };
  return {.soft = count(limit.rlim_cur), .hard = count(limit.rlim_max)};
}

// Of the processes that can be seen here.
std::optional<std::uint64_t> threads_of(uid_t user, const MachineFiles& files) {
  std::optional<std::uint64_t> threads;
  for (const std::string& name : files.names_in("/proc")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string status = "/proc/" + name + "/status";
    if (files.count_of(status, "Uid") == std::uint64_t{user})
      threads = threads.value_or(0) + files.count_of(status, "Threads").value_or(0);
  }
  return threads;
}

bool is_administrator(uid_t user, const MachineFiles& files) {
  constexpr unsigned long long sys_admin = 1ull << 21, sys_resource = 1ull << 24;  // CAP_*
  const auto effective = files.value_of("/proc/self/status", "CapEff");
  return user == 0 ||
         (effective && (std::strtoull(effective->c_str(), nullptr, 16) & (sys_admin | sys_resource)) != 0);
}

std::string text_of(const CountLimit& limit) {
  const std::string used = limit.used ? fmt::format("{} in use", *limit.used) : "use unknown";
  return limit.soft == unlimited_count ? fmt::format("unlimited, {}", used)
                                       : fmt::format("{}, {}", limit.soft, used);
}

// What this user can do about a soft limit.
std::string raise(const CountLimit& limit, const char* flag, std::uint64_t enough) {
  const std::uint64_t wanted = limit.used.value_or(0) + enough;
  return limit.hard < wanted
             ? "ask an administrator to raise the hard limit"
             : fmt::format("ulimit {} {}", flag, limit.hard == unlimited_count ? wanted : limit.hard);
}

Finding finding_of(const char* what, const CountLimit& limit, std::uint64_t enough,
                   const std::string& advice) {
  if (limit.left() >= enough) return {topic, what, text_of(limit)};
  return {topic, what, text_of(limit), FindingStatus::limit, advice};
}

Finding threads(const char* what, const CountLimit& limit, std::uint64_t enough, const std::string& remedy) {
  return finding_of(
      what, limit, enough,
      fmt::format("A rank may need {}, those of the kernel for writes that block among them; what is "
                  "refused costs speed, or ends the run. Raise {}.",
                  enough, remedy));
}

Finding user_threads(const ThreadFacts& facts) {
  constexpr const char* what = "threads of this user";
  if (facts.lifted) return {topic, what, "without a limit for administrators"};
  const std::uint64_t enough = threads_of_a_rank(facts.cpus);
  return threads(
      what, facts.user, enough,
      fmt::format("the limit: {} (for good: nproc in /etc/security/limits.conf; systemd: LimitNPROC=)",
                  raise(facts.user, "-u", enough)));
}

Finding threads_of_cgroup(const ThreadFacts& facts) {
  constexpr const char* what = "threads of the cgroup";
  if (!facts.cgroup) return {topic, what, "without a limit"};
  return threads(what, *facts.cgroup, threads_of_a_rank(facts.cpus),
                 "pids.max (Docker: --pids-limit, Kubernetes: podPidsLimit, systemd: TasksMax=)");
}

Finding open_files(const ThreadFacts& facts) {
  return finding_of(
      "open files", facts.files, files_of_a_rank,
      fmt::format(
          "A rank opens some for each swap path and each rank it talks to: {} should be left. Raise the "
          "limit: {} (for good: nofile in /etc/security/limits.conf; Docker: --ulimit nofile=N; systemd: "
          "LimitNOFILE=).",
          files_of_a_rank, raise(facts.files, "-n", files_of_a_rank)));
}

}  // namespace

ThreadFacts read_threads(const MachineFiles& files, int cpus) {
  const uid_t user = ::getuid();
  ThreadFacts facts{.cpus = cpus, .user = limit_of(RLIMIT_NPROC), .lifted = is_administrator(user, files)};
  facts.user.used = threads_of(user, files);
  if (const auto cgroup = cgroup_threads(files.root()))
    facts.cgroup = CountLimit{.soft = cgroup->limit, .hard = unlimited_count, .used = cgroup->used};
  facts.files = limit_of(RLIMIT_NOFILE);
  if (const auto open = files.names_in("/proc/self/fd").size(); open > 0) facts.files.used = open;
  return facts;
}

std::vector<Finding> findings_of(const ThreadFacts& facts) {
  return {user_threads(facts), threads_of_cgroup(facts), open_files(facts)};
}

nlohmann::ordered_json to_json(const ThreadFacts& facts) {
  using nlohmann::ordered_json;
  const auto count = [](std::uint64_t value) {
    return value == unlimited_count ? ordered_json() : ordered_json(value);
  };
  const auto used = [](const CountLimit& limit) {
    return limit.used ? ordered_json(*limit.used) : ordered_json();
  };
  return {{"thread_limit", facts.lifted ? ordered_json() : count(facts.user.soft)},
          {"user_threads", used(facts.user)},
          {"cgroup_thread_limit", facts.cgroup ? count(facts.cgroup->soft) : ordered_json()},
          {"cgroup_threads", facts.cgroup ? used(*facts.cgroup) : ordered_json()},
          {"open_file_limit", count(facts.files.soft)},
          {"open_files", used(facts.files)}};
}

}  // namespace headrace::doctor
