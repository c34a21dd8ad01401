// Finds and loads the MPI module, when a job has more than one rank or someone asks for it.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "headrace/communicator.h"
#include "headrace/errors.h"
#include "headrace/mpi_module.h"

namespace headrace {
namespace {

constexpr const char* module_name = "libheadrace_mpi.so";

using MakeCommunicator = Communicator* (*)(Device*, const CommunicatorOptions*);

// Of the program or shared object that holds this code.
std::filesystem::path own_folder() {
  Dl_info info{};
  std::error_code ignored;
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr)
    return {};
  return std::filesystem::weakly_canonical(info.dli_fname, ignored).parent_path();
}

std::filesystem::path find_module() {
  std::error_code ignored;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  std::vector<std::filesystem::path> folders = {program, program / ".." / "lib" / "headrace", own_folder()};
  if (const char* path = std::getenv("HEADRACE_MODULE_PATH")) folders.insert(folders.begin(), path);
  for (const auto& folder : folders)
    if (std::filesystem::exists(folder / module_name, ignored)) return folder / module_name;
  throw UsageError(
      fmt::format("the MPI module {} is not beside the program; build the target headrace_mpi, or set "
                  "HEADRACE_MODULE_PATH to its folder.",
                  module_name));
}

struct LoadedModule {
  std::filesystem::path path;
  MakeCommunicator make = nullptr;
};

LoadedModule load() {
  const std::filesystem::path path = find_module();
  // Global, because MPI's own plug-ins look for its symbols there. Never unloaded: MPI does not survive it.
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr)
    throw UsageError(
        fmt::format("cannot load the MPI module: {}. Install MPI (Debian: openmpi-bin).", ::dlerror()));
  auto* function = reinterpret_cast<MakeCommunicator>(::dlsym(module, "headrace_make_mpi_communicator"));
  HEADRACE_CHECK(function != nullptr, "{} lacks its entry point", path.string());
  return {path, function};
}

const LoadedModule& loaded_module() {
  static const LoadedModule module = load();
  return module;
}

// One of the calls that are allowed before MPI_Init. The first line, up to the first comma, names the
// library.
std::string library_version() {
  constexpr std::size_t longest = 8192;  // MPICH's MPI_MAX_LIBRARY_VERSION_STRING; Open MPI's is shorter
  auto* ask = reinterpret_cast<int (*)(char*, int*)>(::dlsym(RTLD_DEFAULT, "MPI_Get_library_version"));
  if (ask == nullptr) return {};
  std::string text(longest, '\0');
  int length = 0;
  if (ask(text.data(), &length) != 0) return {};
  return text.substr(0, std::min({text.find(','), text.find('\n'), text.find('\0')}));
}

}  // namespace

MpiModule load_mpi_module() {
  return {.path = loaded_module().path.lexically_normal().string(), .library = library_version()};
}

std::unique_ptr<Communicator> make_mpi_communicator(Device& device, const CommunicatorOptions& options) {
  return std::unique_ptr<Communicator>(loaded_module().make(&device, &options));
}

}  // namespace headrace
