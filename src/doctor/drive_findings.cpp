#include <fmt/format.h>

#include <algorithm>

#include "src/doctor/drive_facts.h"

namespace headrace::doctor {
namespace {

// Names of findings say which drive where there are several.
std::string labelled(const char* what, const Drive& drive, const Storage& storage) {
  return storage.drives.size() == 1 ? what : fmt::format("{} {}", drive.name, what);
}

Finding model(const Drive& drive, const Storage& storage) {
  std::string value = drive.name;
  if (!drive.model.empty()) value += ": " + drive.model;
  if (drive.size_bytes > 0) value += ", " + format_bytes(drive.size_bytes);
  Finding finding{"", labelled("drive", drive, storage), value};
  if (drive.is_in_memory()) {
    finding.status = FindingStatus::limit;
    finding.advice =
        "This drive lies in memory: what is offloaded to it stays there. Give a folder on a real drive.";
  } else if (drive.rotational.value_or(false) && !drive.is_virtual()) {
    finding.value += ", rotational";
    finding.status = FindingStatus::limit;
    finding.advice =
        "A disk that spins carries a tenth of an NVMe drive's rate: a step waits for it. Give a folder on an "
        "NVMe "
        "drive.";
  } else if (drive.is_virtual()) {
    finding.status = FindingStatus::note;
    finding.advice =
        "A drive of a virtual machine: its host decides how fast it is, often with a cap or in bursts. "
        "Measure it "
        "for longer than a burst lasts.";
  }
  return finding;
}

Finding queue(const Drive& drive, const Storage& storage) {
  std::string value = "scheduler " + (drive.scheduler.empty() ? "unknown" : drive.scheduler);
  if (drive.queued_requests) value += fmt::format(", {} requests", *drive.queued_requests);
  if (drive.request_kib) value += fmt::format(" of up to {} KiB", *drive.request_kib);
  Finding finding{"", labelled("queue", drive, storage), value};
  const std::string settings = "/sys/block/" + drive.name + "/queue/";
  constexpr std::uint64_t good_request_kib = 512;
  if (drive.is_nvme() && !drive.scheduler.empty() && drive.scheduler != "none") {
    finding.status = FindingStatus::note;
    finding.advice = fmt::format(
        "An NVMe drive orders its requests itself; a scheduler above it costs CPU time. An administrator "
        "turns it "
        "off: echo none > {}scheduler",
        settings);
  } else if (drive.request_kib.value_or(good_request_kib) < good_request_kib &&
             drive.hardware_request_kib > drive.request_kib) {
    finding.status = FindingStatus::note;
    finding.advice = fmt::format(
        "Requests are cut into pieces of {} KiB, though the drive takes {}. An administrator raises it: "
        "echo {} > {}max_sectors_kb",
        *drive.request_kib, *drive.hardware_request_kib,
        std::min<std::uint64_t>(*drive.hardware_request_kib, 1280), settings);
  }
  return finding;
}

Finding write_cache(const Drive& drive, const Storage& storage) {
  Finding finding{"", labelled("write cache", drive, storage), drive.write_cache};
  if (drive.write_cache.empty()) {
    finding.value = "unknown";
    finding.status = FindingStatus::note;
    finding.advice =
        "The driver does not say whether the drive has one. Every commit flushes it in any case.";
  } else if (drive.write_cache == "write back") {
    finding.value += ": each commit waits until the drive has flushed it";
  } else {
    finding.value += ": nothing to flush";
  }
  return finding;
}

Finding polling(const Drive& drive, const Storage& storage) {
  const std::string what = labelled("poll queues", drive, storage);
  if (!drive.is_nvme()) return {"", what, "not offered by this driver"};
  if (drive.polled.value_or(false))
    return {"", what, drive.poll_queues > 0 ? fmt::format("{}", drive.poll_queues) : "present"};
  return {"", what, "none", FindingStatus::note,
          "Completions come by interrupt, which is fine. Polled ones (IOPOLL) save CPU time at high rates "
          "and need "
          "queues of their own: boot with nvme.poll_queues=4"};
}

Finding place(const Drive& drive, const Storage& storage) {
  const std::string what = labelled("NUMA node", drive, storage);
  if (!drive.numa_node)
    return {"", what, "unknown", FindingStatus::note,
            "The drive does not say which node it is attached to; compare runs bound to each (numactl)."};
  return {"", what,
          fmt::format("{0}: bind the rank that uses it there (numactl --cpunodebind={0})", *drive.numa_node)};
}

Finding layer(const Layer& layer) {
  switch (layer.kind) {
    case Layer::Kind::disk:
      break;
    case Layer::Kind::partition:
      return {"", "layer", layer.name + ", a partition"};
    case Layer::Kind::volume:
      return {"", "layer", fmt::format("{}, the volume {}", layer.name, layer.detail)};
    case Layer::Kind::encryption:
      return {"", "layer", layer.name + ", encrypted", FindingStatus::note,
              "Every byte is encrypted by the CPU on its way. A path on a drive without it is faster; the "
              "states of "
              "a training run are then readable to whoever holds the drive."};
    case Layer::Kind::array:
      if (layer.detail == "raid0") return {"", "layer", layer.name + ", an array (raid0)"};
      return {"", "layer", fmt::format("{}, an array ({})", layer.name, layer.detail), FindingStatus::note,
              "An array with redundancy writes every byte more than once, and RAID 4 to 6 read before they "
              "write. "
              "Headrace spreads a store over several paths itself: give each drive as a path of its own."};
    case Layer::Kind::loop:
      return {"", "layer", fmt::format("{}, in the file {}", layer.name, layer.detail), FindingStatus::note,
              "A loop device: every request passes two file systems, and may be cached by the lower one."};
  }
  return {};
}

}  // namespace

std::vector<Finding> findings_of(const Storage& storage, bool several_nodes) {
  std::vector<Finding> findings;
  for (const Layer& each : storage.layers) findings.push_back(layer(each));
  for (const Drive& drive : storage.drives) {
    findings.push_back(model(drive, storage));
    if (drive.is_in_memory()) continue;
    findings.push_back(queue(drive, storage));
    findings.push_back(write_cache(drive, storage));
    findings.push_back(polling(drive, storage));
    if (several_nodes) findings.push_back(place(drive, storage));
  }
  return findings;
}

}  // namespace headrace::doctor
