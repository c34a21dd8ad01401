// The parts of the table of Headrace's own settings, in the order of `--help`.
#pragma once

#include <vector>

#include "src/train/settings.h"

namespace headrace::settings {

std::vector<NativeSetting> model_group();
std::vector<NativeSetting> batch_group();
std::vector<NativeSetting> optimizer_group();
std::vector<NativeSetting> loss_scale_group();
std::vector<NativeSetting> memory_group();
// Tuning: of what is swapped, of what is gathered, of the machine.
std::vector<NativeSetting> swap_tuning();
std::vector<NativeSetting> gather_tuning();
std::vector<NativeSetting> machine_tuning();
std::vector<NativeSetting> checkpoint_group();
std::vector<NativeSetting> run_group();
inline constexpr const char* tuning = "Tuning: same results, other speed and memory";

}  // namespace headrace::settings
