// The table of Headrace's own settings: each is a flag (--learning-rate) and a key of the `headrace` section
// (learning_rate).
#include "src/train/setting_groups.h"

namespace headrace {

const std::vector<NativeSetting>& native_settings() {
  static const std::vector<NativeSetting> all = [] {
    std::vector<NativeSetting> table;
    using namespace settings;
    for (const auto& make : {model_group, batch_group, optimizer_group, loss_scale_group, memory_group,
                             swap_tuning, gather_tuning, machine_tuning, checkpoint_group, run_group})
      for (NativeSetting& setting : make()) table.push_back(std::move(setting));
    return table;
  }();
  return all;
}

const NativeSetting* find_native(std::string_view name) {
  for (const NativeSetting& setting : native_settings())
    if (setting.info.name == name) return &setting;
  return nullptr;
}

const std::vector<SettingInfo>& setting_infos() {
  static const std::vector<SettingInfo> infos = [] {
    std::vector<SettingInfo> result;
    for (const NativeSetting& setting : native_settings()) result.push_back(setting.info);
    return result;
  }();
  return infos;
}

}  // namespace headrace
