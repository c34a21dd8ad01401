// Settings that tune reductions and gathers.
#include "src/train/setting_access.h"
#include "src/train/setting_groups.h"
#include "src/train/setting_values.h"

namespace headrace::settings {
namespace {

void set_bucket(Settings& settings, const ConfigValue& value) {
  settings.bucket_bytes = buffer_bytes(value, 1);
  settings.bucket_numel.reset();
}
void set_prefetch(Settings& settings, const ConfigValue& value) {
  settings.prefetch_units = value.count(0, 1024);
  settings.prefetch_numel.reset();
}

}  // namespace

std::vector<NativeSetting> gather_tuning() {
  return {
      {{"bucket", tuning, "SIZE", "buffer of one reduction step (default 4MiB)"},
       set_bucket,
       get<&S::bucket_bytes>},
      {{"prefetch_units", tuning, "N", "units gathered ahead at stage 3 (default 1)"},
       set_prefetch,
       get<&S::prefetch_units>},
      {{"persistence_numel", tuning, "N", "units of at most N elements stay gathered at stage 3 (default 0)"},
       set_count<&S::persistence_numel>,
       get<&S::persistence_numel>},
      {{"retain_adjacent", tuning, "BOOL", "keep a unit whose next use is the next acquire (default true)"},
       set_boolean<&S::retain_adjacent>,
       get<&S::retain_adjacent>},
      {{"fused_head", tuning, "BOOL", "gather the head once for forward and backward (default true)"},
       set_boolean<&S::fused_head>,
       get<&S::fused_head>},
  };
}

}  // namespace headrace::settings
