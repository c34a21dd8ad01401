#include "support/cuda_emulation/wait_sites.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "support/cuda_emulation/options.h"
#include "support/cuda_emulation/runtime.h"

namespace cuda_emulation {
namespace {

struct Places {
  std::mutex mutex;
  std::map<std::pair<std::string, const char*>, std::uint64_t> waits;
};

Places& places() {
  static Places* const one = new Places;
  return *one;
}

void write_places() {
  std::FILE* file = std::fopen(options().waits_file.c_str(), "a");
  if (file == nullptr) return;
  for (const auto& [place, count] : places().waits)
    fmt::print(file, "{} {} {}\n", place.first, place.second, count);
  std::fclose(file);
}

// The call's offset in its program, as addr2line takes it; with the name of the library when it is in one.
std::string place_of(void* return_address) {
  Dl_info info{};
  if (::dladdr(return_address, &info) == 0) violation("a wait in code of no known program or library");
  Dl_info own{};
  ::dladdr(reinterpret_cast<void*>(&wait_is_dropped), &own);
  const std::string library =
      info.dli_fbase == own.dli_fbase ? "" : std::filesystem::path(info.dli_fname).filename().string() + "+";
  return fmt::format("{}{:#x}", library,
                     reinterpret_cast<std::uintptr_t>(return_address) -
                         reinterpret_cast<std::uintptr_t>(info.dli_fbase) - 1);
}

}  // namespace

bool wait_is_dropped(const char* kind, int device_frames) {
  if (options().waits_file.empty() && options().dropped_wait.empty()) return false;
  // This function, the emulated one, the device's, the place.
  void* frames[8];
  const int place_frame = 2 + device_frames;
  if (::backtrace(frames, place_frame + 1) <= place_frame)
    violation(fmt::format("a wait of kind {} whose callers cannot be found", kind));
  const std::string place = place_of(frames[place_frame]);
  Places& all = places();
  const std::lock_guard lock(all.mutex);
  if (all.waits.empty() && !options().waits_file.empty()) std::atexit(write_places);
  ++all.waits[{place, kind}];
  return place == options().dropped_wait;
}

}  // namespace cuda_emulation
