#include "support/cuda_emulation/options.h"

#include <cstdlib>
#include <mutex>
#include <sstream>

namespace cuda_emulation {
namespace {

template <class Set>
void from_environment(const char* name, Set set) {
  if (const char* value = std::getenv(name); value != nullptr && *value != '\0') set(std::string(value));
}

void read_faults(const std::string& text, Options& result) {
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');)
    if (const auto colon = word.find(':'); colon != std::string::npos)
      result.faults[word.substr(0, colon)] = std::stoull(word.substr(colon + 1));
}

Options read_environment() {
  Options result;
  from_environment("HEADRACE_EMULATED_DEVICES", [&](const std::string& v) { result.devices = std::stoi(v); });
  from_environment("HEADRACE_EMULATED_MEMORY",
                   [&](const std::string& v) { result.device_memory_bytes = std::stoull(v); });
  from_environment("HEADRACE_EMULATED_DELAYS",
                   [&](const std::string& v) { result.delay_seed = std::stoull(v); });
  from_environment("HEADRACE_EMULATED_FAULTS", [&](const std::string& v) { read_faults(v, result); });
  from_environment("HEADRACE_EMULATED_WAITS", [&](const std::string& v) { result.waits_file = v; });
  from_environment("HEADRACE_EMULATED_DROPPED_WAIT", [&](const std::string& v) { result.dropped_wait = v; });
  return result;
}

}  // namespace

Options& options() {
  static Options one = read_environment();
  return one;
}

bool fails_now(const std::string& name) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto found = options().faults.find(name);
  return found != options().faults.end() && found->second > 0 && --found->second == 0;
}

}  // namespace cuda_emulation
