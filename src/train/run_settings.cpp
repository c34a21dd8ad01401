// Settings of the run: what it replaces, what it writes, what it says.
#include "src/train/setting_access.h"
#include "src/train/setting_groups.h"

namespace headrace::settings {
namespace {

constexpr const char* group = "Run";

void set_timeout(Settings& settings, const ConfigValue& value) {
  constexpr double year = 365.0 * 86400;
  settings.timeout_seconds = value.number(1, year);
}

}  // namespace

std::vector<NativeSetting> run_group() {
  return {
      {{"overwrite_swap", group, "",
        "start anew where the swap path holds a step of an earlier run, and delete that", true},
       set_boolean<&S::overwrite_swap>,
       get<&S::overwrite_swap>},
      {{"metrics", group, "FILE", "writes one JSON object a step and a summary (default none)", true},
       set_text<&S::metrics_path>,
       get_optional_text<&S::metrics_path>},
      {{"log_every", group, "N",
        "a progress line every N steps, at most one a second; not on a terminal (default 1)", true},
       set_count<&S::log_every, 1, largest_count>,
       get<&S::log_every>},
      {{"timeout", group, "SECONDS", "a rank that waits longer for another ends the job (default 600)", true},
       set_timeout,
       get<&S::timeout_seconds>},
      {{"quiet", group, "", "no progress on stderr, warnings and errors only", true},
       set_boolean<&S::quiet>,
       get<&S::quiet>},
  };
}

}  // namespace headrace::settings
