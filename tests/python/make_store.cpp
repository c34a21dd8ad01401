// Makes a swap path as the engine would, for read_store_test.py, and prints the hash that inspect finds in
// it. Usage: make_store FOLDER WORLD-SIZE STAGE BLOCK-NUMEL PATHS PARITY OPTIMIZER MASTER MOMENTS [PINS]
// With PINS step 6 is pinned as "kept".
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "headrace/errors.h"
#include "headrace/inspect.h"
#include "tests/unit/checkpoint/engine_store.h"

using namespace headrace;

namespace {

struct Wanted {
  std::vector<std::string> swap_paths;
  std::uint32_t parity = 0, world_size = 1, pins = 0;
  int stage = 0;
  std::uint64_t block_numel = 0;
  StateFormat states;
};

void make(const Wanted& wanted, IoEngine& engine) {
  for (std::uint32_t rank = 0; rank < wanted.world_size; ++rank) {
    std::vector<std::string> directories;
    for (const std::string& path : wanted.swap_paths) {
      std::filesystem::create_directories(path);
      directories.push_back(fmt::format("{}/rank-{:05}", path, rank));
    }
    testing::EngineStore store(directories, rank, wanted.world_size, wanted.stage, wanted.block_numel, engine,
                               Durability::step, wanted.parity, wanted.states, wanted.pins);
    store.commit(6);
    if (wanted.pins > 0) (*store).pin("kept");
    if (rank + 1 == wanted.world_size && wanted.world_size > 1) continue;  // the last rank is one step behind
    store.release();
    store.commit(7);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 10 && argc != 11) return 2;
  try {
    Wanted wanted{.swap_paths = {},
                  .parity = static_cast<std::uint32_t>(std::atoi(argv[6])),
                  .world_size = static_cast<std::uint32_t>(std::atoi(argv[2])),
                  .pins = argc > 10 ? static_cast<std::uint32_t>(std::atoi(argv[10])) : 0,
                  .stage = std::atoi(argv[3]),
                  .block_numel = static_cast<std::uint64_t>(std::atoll(argv[4])),
                  .states = testing::states_of(argv[7], argv[8], argv[9])};
    const int paths = std::atoi(argv[5]);
    for (int p = 0; p < paths; ++p)
      wanted.swap_paths.push_back(paths == 1 ? argv[1] : fmt::format("{}/p{}", argv[1], p));
    const auto engine = make_thread_engine({});
    make(wanted, *engine);
    const InspectReport report =
        inspect_swap_path(wanted.swap_paths, {.verify = true, .hash = true}, *engine);
    if (!report.state_hash) throw Error(to_text(report));
    std::printf("%016lx step %lu\n", *report.state_hash, *report.step);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
