// Finds and loads the MPI module when a job has more than one rank.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "headrace/communicator.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

constexpr const char* module_name = "libheadrace_mpi.so";

using MakeCommunicator = Communicator* (*)(Device*, const CommunicatorOptions*);

std::filesystem::path find_module() {
  std::error_code ignored;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  std::vector<std::filesystem::path> folders = {program, program / ".." / "lib" / "headrace"};
  if (const char* path = std::getenv("HEADRACE_MODULE_PATH")) folders.insert(folders.begin(), path);
  for (const auto& folder : folders)
    if (std::filesystem::exists(folder / module_name, ignored)) return folder / module_name;
  throw UsageError(
      fmt::format("the MPI module {} is not beside the program; build the target headrace_mpi, or set "
                  "HEADRACE_MODULE_PATH to its folder.",
                  module_name));
}

MakeCommunicator load() {
  const std::filesystem::path path = find_module();
  // Global, because MPI's own plug-ins look for its symbols there. Never unloaded: MPI does not survive it.
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr)
    throw UsageError(
        fmt::format("cannot load the MPI module: {}. Install MPI (Debian: openmpi-bin).", ::dlerror()));
  auto* function = reinterpret_cast<MakeCommunicator>(::dlsym(module, "headrace_make_mpi_communicator"));
  HEADRACE_CHECK(function != nullptr, "{} lacks its entry point", path.string());
  return function;
}

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(Device& device, const CommunicatorOptions& options) {
  static const MakeCommunicator make = load();
  return std::unique_ptr<Communicator>(make(&device, &options));
}

}  // namespace headrace
