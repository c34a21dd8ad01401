// Settings of what lives where, and within which limits.
#include "src/train/setting_access.h"
#include "src/train/setting_groups.h"
#include "src/train/setting_values.h"

namespace headrace::settings {
namespace {

constexpr const char* group = "Memory: what lives where";

void set_durability(Settings& settings, const ConfigValue& value) {
  settings.durability = value.choice({"step", "none"}) == 0 ? Durability::step : Durability::none;
}
Json get_durability(const Settings& settings) {
  return settings.durability == Durability::step ? "step" : "none";
}

void set_device(Settings& settings, const ConfigValue& value) {
  settings.device = value.choice({"cpu", "cuda"}) == 0 ? DeviceKind::cpu : DeviceKind::cuda;
}
Json get_device(const Settings& settings) {
  return settings.device == DeviceKind::cpu ? "cpu" : "cuda";
}

void set_swap_paths(Settings& settings, const ConfigValue& value) {
  settings.swap_paths.clear();
  for (const ConfigValue& path : values_of(value)) settings.swap_paths.push_back(path.text());
}
Json get_swap_paths(const Settings& settings) {
  if (settings.swap_paths.empty()) return {};
  return settings.swap_paths.size() == 1 ? Json(settings.swap_paths.front()) : Json(settings.swap_paths);
}

}  // namespace

std::vector<NativeSetting> memory_group() {
  return {
      {{"stage", group, "0|1|2|3",
        "ZeRO stage: shards nothing, optimizer, +gradients, +parameters (default 0)"},
       set_count<&S::stage, 0, 3>,
       get<&S::stage>},
      {{"offload_optimizer", group, "TIER", "none, cpu or nvme: optimizer states (default none)"},
       set_tier<&S::optimizer_tier>,
       get_tier<&S::optimizer_tier>},
      {{"offload_gradients", group, "TIER", "none, cpu or nvme: gradients, stages 2 and 3 (default none)"},
       set_tier<&S::gradient_tier>,
       get_tier<&S::gradient_tier>},
      {{"offload_parameters", group, "TIER", "none, cpu or nvme: parameters, stage 3 (default none)"},
       set_tier<&S::parameter_tier>,
       get_tier<&S::parameter_tier>},
      {{"device", group, "cpu|cuda", "what computes (default cpu)"}, set_device, get_device},
      {{"device_memory", group, "SIZE",
        "hard limit a rank, like 512MiB (default: what the plan needs; on CUDA what is free)"},
       set_limit<&S::device_memory_bytes>,
       get_size<&S::device_memory_bytes>},
      {{"host_memory", group, "SIZE", "hard limit a rank (default: what the machine has available)"},
       set_limit<&S::host_memory_bytes>,
       get_size<&S::host_memory_bytes>},
      {{"swap_path", group, "DIR",
        "existing folder on an NVMe drive, for what is kept there; several share the load", false, true},
       set_swap_paths,
       get_swap_paths},
      {{"swap_parity", group, "N",
        "swap paths that may be lost without losing the run; takes as much more disk (default 0)"},
       set_count<&S::swap_parity, 0, 16>,
       get<&S::swap_parity>},
      {{"durability", group, "step|none",
        "step: resumable after any crash; none: half the disk (default step)"},
       set_durability,
       get_durability},
  };
}

}  // namespace headrace::settings
