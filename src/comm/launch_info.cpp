#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "headrace/communicator.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

std::optional<int> number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view view(text);
  int value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc{} || end != view.data() + view.size() || value < 0)
    throw UsageError(fmt::format("the launcher set {}=\"{}\", which is not a number of ranks.", name, view));
  return value;
}

struct Variables {
  const char *launcher, *rank, *size, *local_rank, *local_size;
};

constexpr Variables launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
};

}  // namespace

LaunchInfo launch_info() {
  for (const Variables& variables : launchers) {
    const auto rank = number(variables.rank), size = number(variables.size);
    if (!rank || !size) continue;
    if (*size < 1 || *rank >= *size)
      throw UsageError(fmt::format("the launcher {} says rank {} of {}.", variables.launcher, *rank, *size));
    LaunchInfo info{.rank = *rank,
                    .size = *size,
                    .local_rank = *rank,
                    .local_size = *size,
                    .launcher = variables.launcher};
    // srun writes "2(x3)" for several nodes: only a plain number is taken.
    if (const char* text = std::getenv(variables.local_rank)) info.local_rank = std::atoi(text);
    if (const char* text = std::getenv(variables.local_size)) info.local_size = std::max(1, std::atoi(text));
    return info;
  }
  return {};
}

}  // namespace headrace
