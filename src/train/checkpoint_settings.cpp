// Settings of checkpoints: where they are saved, how often, and what a run begins with.
#include <fmt/format.h>

#include "headrace/checkpoint.h"
#include "headrace/errors.h"
#include "src/train/setting_access.h"
#include "src/train/setting_groups.h"

namespace headrace::settings {
namespace {

constexpr const char* group = "Checkpoints";

void set_resume(Settings& settings, const ConfigValue& value) {
  const std::string text = value.text();
  settings.resume_swap = text == "swap";
  settings.resume_checkpoint = settings.resume_swap ? "" : text;
}
Json get_resume(const Settings& settings) {
  if (settings.resume_swap) return "swap";
  return settings.resume_checkpoint.empty() ? Json() : Json(settings.resume_checkpoint);
}

void set_mode(Settings& settings, const ConfigValue& value) {
  settings.pin_checkpoints = value.choice({"copy", "pin"}) == 1;
}
Json get_mode(const Settings& settings) {
  return settings.pin_checkpoints ? "pin" : "copy";
}

}  // namespace

std::vector<NativeSetting> checkpoint_group() {
  return {
      {{"checkpoint_dir", group, "DIR", "saves checkpoints here, at the end and when stopped (default none)"},
       set_text<&S::checkpoint_directory>,
       get_optional_text<&S::checkpoint_directory>},
      {{"save_every", group, "N", "also after every N steps (default: at the end alone)", true},
       set_count<&S::save_every, 1, ~std::uint64_t{0}>,
       get_size<&S::save_every>},
      {{"keep_last", group, "N",
        "removes all but the last N checkpoints after each save (default: keeps all)", true},
       set_count<&S::keep_last, 1, ~std::uint64_t{0}>,
       get_size<&S::keep_last>},
      {{"checkpoint_mode", group, "copy|pin",
        "pin: the swap store keeps the last --keep-last of them, nothing is copied (default copy)"},
       set_mode,
       get_mode},
      {{"async_save", group, "", "training goes on while a checkpoint is written (default: it waits)"},
       set_boolean<&S::async_save>,
       get<&S::async_save>},
      {{"save_buffers", group, "N",
        "blocks by which an update may overtake --async-save before it waits (default 8)"},
       set_count<&S::save_buffers, 1, 4096>,
       get_size<&S::save_buffers>},
      {{"checkpoint_parity", group, "N",
        "any N files of a checkpoint may be lost: each has N more beside the ranks' (default 0)"},
       set_count<&S::checkpoint_parity, 0, most_checkpoint_parity>,
       get_size<&S::checkpoint_parity>},
      {{"resume", group, "latest|swap|CHECKPOINT",
        "goes on from the newest in --checkpoint-dir, the last step in the swap path, or this one", true},
       set_resume,
       get_resume},
      {{"allow_fresh", group, "",
        "starts anew where --resume latest finds no checkpoint, instead of an error", true},
       set_boolean<&S::allow_fresh>,
       get<&S::allow_fresh>},
      {{"overwrite_checkpoints", group, "",
        "a new run saves where --checkpoint-dir holds checkpoints of an earlier one", true},
       set_boolean<&S::overwrite_checkpoints>,
       get<&S::overwrite_checkpoints>},
      {{"load_weights", group, "CHECKPOINT", "begins a new run with the weights of this one", true},
       set_text<&S::load_weights>,
       get_optional_text<&S::load_weights>},
  };
}

}  // namespace headrace::settings
