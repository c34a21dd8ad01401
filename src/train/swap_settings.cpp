// Settings that tune how states go to and from the drives.
#include "headrace/errors.h"
#include "src/train/setting_access.h"
#include "src/train/setting_groups.h"
#include "src/train/setting_values.h"

namespace headrace::settings {
namespace {

void set_swap_block(Settings& settings, const ConfigValue& value) {
  settings.swap_block_bytes = value.bytes();  // its range depends on the states: resolve.cpp
  settings.swap_block_numel.reset();
}

// "3GB/s,1GB/s" as two values.
std::vector<ConfigValue> split_at_commas(const ConfigValue& value) {
  if (!value.json().is_string()) return {value};
  std::vector<ConfigValue> parts;
  const std::string text = value.text();
  for (std::size_t first = 0, comma = 0; comma != std::string::npos; first = comma + 1) {
    comma = text.find(',', first);
    const std::string part = text.substr(first, comma - first);
    if (part.empty()) value.refuse("rates with a comma between two of them");
    parts.emplace_back(value.key(), part);
  }
  return parts;
}
void set_swap_path_rates(Settings& settings, const ConfigValue& value) {
  settings.swap_path_rates.clear();
  for (const ConfigValue& given : values_of(value))
    for (const ConfigValue& rate : split_at_commas(given)) {
      const Bytes bytes = rate_of(rate);
      if (bytes == 0) rate.refuse("a rate above 0");
      settings.swap_path_rates.push_back(static_cast<double>(bytes));
    }
}
Json get_swap_path_rates(const Settings& settings) {
  if (settings.swap_path_rates.empty()) return {};
  Json rates = Json::array();
  for (const double rate : settings.swap_path_rates) rates.push_back(static_cast<Bytes>(rate));
  return rates;
}

}  // namespace

std::vector<NativeSetting> swap_tuning() {
  return {
      {{"swap_block", tuning, "SIZE",
        "one read or write of states; fixed for the life of a store (default 3MiB)"},
       set_swap_block,
       get<&S::swap_block_bytes>},
      {{"swap_path_rates", tuning, "RATE",
        "of each swap path, like 3GB/s,1GB/s: its share of the blocks (default: measured)", false, true},
       set_swap_path_rates,
       get_swap_path_rates},
      {{"swap_buffers", tuning, "N", "blocks in flight between NVMe and the update, at least 3 (default 8)"},
       set_count<&S::swap_buffers, 3, 4096>,
       get<&S::swap_buffers>},
      {{"swap_cache", tuning, "SIZE",
        "host memory for blocks kept beside NVMe (default: what --host-memory leaves)"},
       set_bytes<&S::swap_cache_bytes>,
       get_optional<&S::swap_cache_bytes>},
      {{"parameter_buffers", tuning, "N",
        "blocks of parameters read from NVMe ahead of their use (default 16)"},
       set_count<&S::parameter_buffers, 1, 65536>,
       get<&S::parameter_buffers>},
      {{"gradient_buffers", tuning, "N", "blocks of gradients on their way to or from NVMe (default 8)"},
       set_count<&S::gradient_buffers, 1, 65536>,
       get<&S::gradient_buffers>},
  };
}

}  // namespace headrace::settings
