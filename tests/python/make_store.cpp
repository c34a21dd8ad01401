// Makes a swap path as the engine would, for read_store_test.py, and prints the hash that inspect finds in
// it. Usage: make_store FOLDER WORLD-SIZE STAGE BLOCK-NUMEL
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "headrace/errors.h"
#include "headrace/inspect.h"
#include "tests/unit/checkpoint/engine_store.h"

using namespace headrace;

namespace {

void make(const std::string& folder, std::uint32_t world_size, int stage, std::uint64_t block_numel,
          IoEngine& engine) {
  for (std::uint32_t rank = 0; rank < world_size; ++rank) {
    testing::EngineStore store(fmt::format("{}/rank-{:05}", folder, rank), rank, world_size, stage,
                               block_numel, engine);
    store.commit(6);
    if (rank + 1 == world_size && world_size > 1) continue;  // the last rank is one step behind
    store.release();
    store.commit(7);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  try {
    const auto engine = make_thread_engine({});
    make(argv[1], static_cast<std::uint32_t>(std::atoi(argv[2])), std::atoi(argv[3]),
         static_cast<std::uint64_t>(std::atoll(argv[4])), *engine);
    const InspectReport report = inspect_swap_path({argv[1]}, {.verify = true, .hash = true}, *engine);
    if (!report.state_hash) throw Error(to_text(report));
    std::printf("%016lx step %lu\n", *report.state_hash, *report.step);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
