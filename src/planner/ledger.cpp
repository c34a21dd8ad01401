#include "headrace/planner.h"

#include <fmt/format.h>

namespace headrace {
namespace {

std::string cell(Bytes bytes) {
  return bytes == 0 ? "-" : format_bytes(bytes);
}

std::string row(std::string_view name, const std::string& device, const std::string& host,
                const std::string& nvme) {
  return fmt::format("  {:<24}{:>14}{:>14}{:>14}\n", name, device, host, nvme);
}

std::string limit_cell(Bytes limit) {
  return limit == 0 ? "none" : format_bytes(limit);
}

std::string spare_cell(Bytes total, Bytes limit) {
  if (limit == 0) return "";
  return total <= limit ? format_bytes(limit - total) + " free" : format_bytes(total - limit) + " over";
}

std::string readable(MemoryTag tag) {
  std::string name(name_of(tag));
  for (char& c : name)
    if (c == '_') c = ' ';
  return name;
}

}  // namespace

std::string ledger_table(const MemoryPlan& plan) {
  std::string table = row("per rank", "device", "host", "nvme");
  for (std::size_t t = 0; t < memory_tag_count; ++t) {
    const auto tag = static_cast<MemoryTag>(t);
    if (plan.device[tag] + plan.host[tag] + plan.nvme[tag] == 0) continue;
    table += row(readable(tag), cell(plan.device[tag]), cell(plan.host[tag]), cell(plan.nvme[tag]));
  }
  table += row("total", cell(plan.device.total()), cell(plan.host.total()), cell(plan.nvme.total()));
  table += row("limit", limit_cell(plan.device_limit), limit_cell(plan.host_limit), "");
  if (plan.device_limit + plan.host_limit > 0)
    table += row("", spare_cell(plan.device.total(), plan.device_limit),
                 spare_cell(plan.host.total(), plan.host_limit), "");
  if (plan.world_size > 1) {
    const auto n = static_cast<Bytes>(plan.world_size);
    table += row(fmt::format("all {} ranks", n), cell(plan.device.total() * n), cell(plan.host.total() * n),
                 cell(plan.nvme.total() * n));
  }
  return table;
}

}  // namespace headrace
