// Question: how fast does the Checkpointer save states, and load them, that lie in host memory or on NVMe?
// The ceilings are measured beside it by compare.py, which drives this program.
//
// An engine over synthetic units; rank 0 reads commands from stdin, a line each, and answers with a line of
// JSON. Under mpirun every rank saves its part. What an earlier save wrote is removed outside the clock.
//
//   save   writes a checkpoint                          {"seconds": 2.1, "bytes": 2147487744, ...}
//   load   a new engine loads the last one saved        the same
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>

#include "headrace/backends.h"
#include "headrace/checkpoint.h"
#include "headrace/cpu_pool.h"
#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/splitmix.h"

namespace headrace {
namespace {

struct Arguments {
  std::string folder, tier = "host", io = "auto";
  std::uint64_t parameters = std::uint64_t{512} << 18;  // 1.5 GiB of states
  std::int64_t unit_parameters = 4 << 20;
  int threads = 0;
};

enum class Command : std::uint8_t { end, save, load };

Command read_command() {
  std::string line;
  if (!std::getline(std::cin, line)) return Command::end;
  if (line == "save") return Command::save;
  if (line == "load") return Command::load;
  throw UsageError(fmt::format("'{}' is no command; save and load are.", line));
}

Tier tier_of(const std::string& name) {
  if (name == "host") return Tier::host;
  if (name == "nvme") return Tier::nvme;
  throw UsageError(fmt::format("--tier {} is not one of host, nvme.", name));
}

IoKind io_kind_of(const std::string& name) {
  if (name == "auto") return IoKind::automatic;
  if (name == "io_uring") return IoKind::io_uring;
  if (name == "threads") return IoKind::threads;
  throw UsageError(fmt::format("--io {} is not one of auto, io_uring, threads.", name));
}

EngineOptions engine_options(const Arguments& arguments, int rank) {
  EngineOptions options;
  options.stage = 3;
  options.optimizer_tier = options.gradient_tier = options.parameter_tier = tier_of(arguments.tier);
  options.durability = Durability::none;  // half the disk; extents that are read are the same
  if (options.optimizer_tier == Tier::nvme)
    options.swap_directories = {files::join(arguments.folder, fmt::format("swap/rank-{:05}", rank))};
  return options;
}

// No zeros, no pattern that a disk could fold away.
void fill_piece(const StatePiece& piece, const StateArrays& states, std::uint64_t at) {
  const auto fill = [&](std::byte* values, std::uint64_t seed) {
    auto* words = reinterpret_cast<std::uint32_t*>(values) + at;
    for (std::uint64_t i = 0; i < piece.numel; ++i)
      words[i] = static_cast<std::uint32_t>(splitmix64(seed + piece.first + i));
  };
  fill(states.master, 1);
  for (std::size_t m = 0; m < 2; ++m) fill(states.moments[m].values, (m + 2) << 40);
}

class Bench {
 public:
  explicit Bench(const Arguments& arguments)
      : arguments_(arguments),
        backends_{
            .device_memory_bytes = Bytes{256} << 20, .threads = arguments.threads, .launch = launch_info()},
        device_(open_device(backends_)),
        kernels_(open_kernels(backends_, *device_)),
        communicator_(open_communicator(backends_, *device_)),
        io_(make_io(io_kind_of(arguments.io), {})),
        options_(engine_options(arguments, communicator_->rank())) {
    for (const std::string& swap : options_.swap_directories) std::filesystem::create_directories(swap);
    make_engine();
    state_.iteration = 1;
    engine_->restore(fill_piece, state_, 1);
  }

  void serve() {
    for (Command command = next_command(); command != Command::end; command = next_command()) {
      if (command == Command::save) save();
      if (command == Command::load) load();
    }
  }

 private:
  Command next_command() {
    const Command own = communicator_->rank() == 0 ? read_command() : Command::end;
    return gather_from_ranks(own, *communicator_, *device_, "command").front();
  }

  void make_engine() {
    checkpointer_.reset();
    engine_.reset();
    engine_ = std::make_unique<Engine>(*device_, *kernels_, *communicator_, io_.get(), options_);
    for (std::uint64_t p = 0;
         p * static_cast<std::uint64_t>(arguments_.unit_parameters) < arguments_.parameters; ++p)
      engine_->add_unit({.name = fmt::format("unit.{}", p),
                         .parameters = {{.name = fmt::format("unit.{}.weight", p),
                                         .shape = {arguments_.unit_parameters}}}});
  }

  void save() {
    if (checkpointer_ == nullptr)
      checkpointer_ =
          std::make_unique<Checkpointer>(*engine_, *io_, *communicator_, *device_, options_,
                                         CheckpointOptions{.directory = checkpoints(),
                                                           .keep_last = 0,
                                                           .leads_host = backends_.launch.local_rank == 0,
                                                           .written_by = "perf_checkpoint",
                                                           .model = ""});
    if (communicator_->rank() == 0)
      for (const FoundCheckpoint& old : find_checkpoints(checkpoints()))
        std::filesystem::remove_all(old.path);
    ++state_.iteration;
    saved_ = timed([&] { return checkpointer_->save(state_); });
  }

  void load() {
    make_engine();
    saved_ = timed([&] {
      state_ = load_checkpoint(saved_.path, *engine_, *io_, {});
      return saved_;
    });
  }

  template <class Action>
  Checkpointer::Saved timed(const Action& action) {
    (void)gather_from_ranks(0, *communicator_, *device_, "start");
    const double cpu = cpu_seconds();
    const auto start = std::chrono::steady_clock::now();
    const Checkpointer::Saved saved = action();
    const double used = cpu_seconds() - cpu;
    double cpu_of_all = 0;
    for (const double of_rank : gather_from_ranks(used, *communicator_, *device_, "end"))
      cpu_of_all += of_rank;
    if (communicator_->rank() == 0) {
      fmt::print(R"({{"seconds": {:.6f}, "bytes": {}, "cpu_seconds": {:.3f}, "io": "{}"}})"
                 "\n",
                 seconds_since(start), saved.bytes, cpu_of_all, io_->name());
      std::fflush(stdout);
    }
    return saved;
  }

  static double cpu_seconds() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }

  std::string checkpoints() const { return files::join(arguments_.folder, "checkpoints"); }

  const Arguments& arguments_;
  BackendOptions backends_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceKernels> kernels_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<IoEngine> io_;
  EngineOptions options_;
  TrainingState state_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Checkpointer> checkpointer_;
  Checkpointer::Saved saved_;
};

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  headrace::Arguments arguments;
  CLI::App app("Saves and loads checkpoints of synthetic states, a command a line on stdin: save, load.");
  app.add_option("--folder", arguments.folder, "existing folder for checkpoints and swap stores")->required();
  app.add_option("--tier", arguments.tier, "where states, gradients and parameters are: host or nvme");
  app.add_option("--parameters", arguments.parameters, "12 bytes of states each (default 134217728)");
  app.add_option("--unit-parameters", arguments.unit_parameters, "of each unit (default 4194304)");
  app.add_option("--io", arguments.io, "auto, io_uring or threads (default auto)");
  app.add_option("--threads", arguments.threads, "of the CPU's kernels (default: the machine's)");
  CLI11_PARSE(app, argc, argv);
  try {
    headrace::Bench(arguments).serve();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "perf_checkpoint: {}\n", error.what());
    return 1;
  }
}
