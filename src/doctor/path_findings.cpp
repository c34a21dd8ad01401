#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <sstream>

#include "src/doctor/path_facts.h"

namespace headrace::doctor {
namespace {

std::string remedy_of(int code, const std::string& path) {
  switch (code) {
    case ENOENT:
      return fmt::format("Make it: mkdir -p {}", path);
    case EACCES:
    case EPERM:
      return "This user may not write there. Give a folder of its own, or have its owner run chown or chmod.";
    case EROFS:
      return "The file system is mounted read-only. Give another path, or have it mounted writable (after an "
             "error "
             "the kernel itself does this: dmesg says why).";
    case ENOSPC:
      return "The file system is full. Delete something, or give a path on another one.";
    case EDQUOT:
      return "The quota of this user is used up (quota -s shows it).";
    case ENOTDIR:
      return "A part of the path is a file. Give the path of a folder.";
    default:
      return "Look at what the system log (dmesg) says of its drive, or give another path.";
  }
}

Finding folder(const PathFacts& facts) {
  const PathProbe& probe = facts.probe;
  const auto unusable = [&](const std::string& value, int code) {
    return Finding{"", "folder", value, FindingStatus::limit, remedy_of(code, probe.path)};
  };
  if (probe.is_dangling_link)
    return {"", "folder", "a link to what does not exist", FindingStatus::limit,
            fmt::format("Create what it points to (readlink {}), or give another path.", probe.path)};
  if (probe.code != 0) return unusable(std::strerror(probe.code), probe.code);
  if (!probe.is_folder) return unusable("not a folder", ENOTDIR);
  for (const int code : {probe.file.create_code, probe.file.write_code})
    if (code != 0) return unusable(fmt::format("cannot be written to ({})", std::strerror(code)), code);
  return {"", "folder", "can be written to"};
}

std::string advice_on(FileSystemKind kind, const std::string& type) {
  switch (kind) {
    case FileSystemKind::memory:
      return "It lies in memory: what is offloaded to it stays there, and is gone with a restart. Give a "
             "folder on a "
             "drive.";
    case FileSystemKind::overlay:
      return "The container's own layer: copies of files on their first change, and gone with the container. "
             "Mount a "
             "folder of the host into it (Docker: -v /mnt/nvme:/swap, Kubernetes: a local volume).";
    case FileSystemKind::network:
      return "A network file system: each transfer crosses the network, and other machines share its rate. "
             "Give a "
             "folder on a drive of this machine.";
    case FileSystemKind::passed_through:
      return "Another program or the host of this virtual machine serves it: slower than a drive of its own, "
             "and "
             "what a flush reaches is up to that server. Give a folder on a drive of this machine.";
    case FileSystemKind::copies_on_write:
      return type == "btrfs"
                 ? "Each write goes to a new place, and fragments the store. chattr +C on the empty folder "
                   "writes in place (the store has checksums of its own)."
                 : fmt::format(
                       "Each write goes to a new place, and the file system may keep a cache of "
                       "its own. ext4 or xfs is faster for a swap store than {}.",
                       type);
    case FileSystemKind::local:
    case FileSystemKind::other:
      break;
  }
  return {};
}

Finding file_system(const PathFacts& facts) {
  if (!facts.mount)
    return {"", "file system", "unknown", FindingStatus::note,
            "/proc is not visible here; df -T PATH may tell which file system and drive this is."};
  const FileSystemKind kind = kind_of(facts.mount->type);
  Finding finding{"", "file system", fmt::format("{} on {}", facts.mount->type, facts.mount->point)};
  if (facts.mount->source.starts_with('/') || facts.mount->source.find(':') != std::string::npos)
    finding.value += fmt::format(" ({})", facts.mount->source);
  finding.advice = advice_on(kind, facts.mount->type);
  if (finding.advice.empty()) return finding;
  finding.status = kind == FileSystemKind::copies_on_write || kind == FileSystemKind::passed_through
                       ? FindingStatus::note
                       : FindingStatus::limit;
  return finding;
}

std::string without_repeats(const std::string& options) {
  std::string kept;
  std::istringstream list(options);
  for (std::string option; std::getline(list, option, ',');)
    if (!has_option(kept, option)) kept += (kept.empty() ? "" : ",") + option;
  return kept;
}

Finding mount_options(const Mount& mount) {
  const std::string all = mount.options + "," + mount.super_options;
  Finding finding{"", "mount options", without_repeats(all)};
  const auto limit = [&](const char* advice) {
    finding.status = FindingStatus::limit;
    finding.advice = advice;
    return finding;
  };
  if (has_option(all, "ro")) return limit("Mounted read-only: mount -o remount,rw, or give another path.");
  if (has_option(all, "sync"))
    return limit(
        "sync: every write waits until it is on the drive. Mount without it; commits flush what they must.");
  if (has_option(all, "nobarrier") || has_option(all, "barrier=0"))
    return limit(
        "Flushes are not passed to the drive: after a loss of power, committed steps may be missing or torn, "
        "unless "
        "the drive's cache is protected. Mount without nobarrier.");
  if (has_option(all, "data=journal"))
    return limit("data=journal writes everything twice and rules out direct I/O. Mount with data=ordered.");
  return finding;
}

Finding direct_io(const DirectIoProbe& file) {
  if (!file.direct)
    return {"", "direct I/O", "refused", FindingStatus::limit,
            "Transfers go through the page cache: a copy more, and host memory that the run needs. ext4 and "
            "xfs on a "
            "drive of this machine take O_DIRECT."};
  const auto text = [](std::uint32_t alignment) {
    return alignment == 0 ? "unknown" : std::to_string(alignment);
  };
  return {"", "direct I/O",
          fmt::format("memory aligned to {}, offsets to {} ({})", text(file.memory_alignment),
                      text(file.offset_alignment), file.stated ? "stated by the file" : "tried")};
}

// Two generations of master copy and two moments, in fp32.
std::string parameters_that_fit(Bytes bytes) {
  constexpr Bytes bytes_per_parameter = 2 * 3 * sizeof(float);
  const double millions = static_cast<double>(bytes) / bytes_per_parameter / 1e6;
  return millions < 1000 ? fmt::format("{:.0f} million", millions)
                         : fmt::format("{:.1f} billion", millions / 1000);
}

Finding space(const PathProbe& probe, const std::vector<std::string>& sharing) {
  if (probe.total_bytes == 0)
    return {"", "space", "unknown", FindingStatus::note,
            "The file system does not say; a run reserves what it needs at its start, or ends there."};
  Finding finding{"", "space",
                  fmt::format("{} free of {}, for the optimizer states of {} parameters",
                              format_bytes(probe.available_bytes), format_bytes(probe.total_bytes),
                              parameters_that_fit(probe.available_bytes))};
  if (!sharing.empty()) finding.value += fmt::format(", together with {}", fmt::join(sharing, ", "));
  if (probe.free_bytes > probe.available_bytes)
    finding.value +=
        fmt::format("; {} more is reserved", format_bytes(probe.free_bytes - probe.available_bytes));
  if (probe.available_bytes >= probe.total_bytes / 10) return finding;
  finding.status = FindingStatus::note;
  finding.advice =
      "A file system that is nearly full fragments what is written, and a drive that is slows down. Delete "
      "something, "
      "or give a path on another one.";
  return finding;
}

}  // namespace

std::vector<Finding> findings_of(const PathFacts& facts, bool several_nodes) {
  const std::string topic = "swap path " + facts.probe.path;
  std::vector<Finding> findings = {folder(facts)};
  findings.front().topic = topic;
  if (!facts.probe.is_folder) return findings;  // where a file lies helps nobody
  findings.push_back(file_system(facts));
  if (facts.usable()) {
    if (facts.mount) findings.push_back(mount_options(*facts.mount));
    findings.push_back(direct_io(facts.probe.file));
    findings.push_back(space(facts.probe, facts.sharing));
  }
  if (facts.storage.drives.empty()) {
    if (facts.mount && facts.mount->source.starts_with("/dev/"))
      findings.push_back(
          {"", "drive", facts.mount->source, FindingStatus::note,
           "/sys is not visible here (a container without it), so nothing more is known of it."});
  }
  for (Finding& finding : findings_of(facts.storage, several_nodes)) findings.push_back(std::move(finding));
  for (Finding& finding : findings) finding.topic = topic;
  return findings;
}

std::vector<Finding> shared_drives(const std::vector<PathFacts>& paths) {
  struct Shared {
    std::string name;
    std::vector<std::string> paths;
  };
  std::map<std::string, Shared>
      users;  // by drive, or by file system where no drive of this machine is behind it
  const auto add = [&](const std::string& key, const std::string& name, const std::string& path) {
    users[key].name = name;
    users[key].paths.push_back(path);
  };
  for (const PathFacts& path : paths) {
    if (!path.probe.is_folder) continue;
    for (const Drive& drive : path.storage.drives) add(drive.name, drive.name, path.probe.path);
    if (path.mount && path.storage.drives.empty())
      add(path.mount->device, fmt::format("{} ({})", path.mount->source, path.mount->type), path.probe.path);
  }
  std::vector<Finding> findings;
  for (const auto& [key, shared] : users)
    if (shared.paths.size() > 1)
      findings.push_back(
          {"swap paths", "shared", fmt::format("{} is behind {}", shared.name, fmt::join(shared.paths, ", ")),
           FindingStatus::limit,
           "Their rates do not add up, and parity does not protect against the loss of what they "
           "share. Give paths on different drives."});
  return findings;
}

}  // namespace headrace::doctor
