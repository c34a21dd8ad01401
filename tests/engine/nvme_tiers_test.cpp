// Parameters and gradients whose home is NVMe: blocks and buffers of any proportion, what is read ahead, what
// a slow or failing disk does, what is left on it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "headrace/errors.h"
#include "tests/support/delaying_io_engine.h"
#include "tests/support/engine_harness.h"
#include "tests/support/fault_io_engine.h"
#include "tests/support/unsharded_oracle.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;

constexpr Combination all_nvme{3, Tier::nvme, Tier::nvme, Tier::nvme};
constexpr Combination device_update{3, Tier::device, Tier::nvme, Tier::nvme};
constexpr Combination host_update{3, Tier::host, Tier::nvme, Tier::nvme};

UnitSpec matrix(const std::string& name, std::int64_t numel) {
  return {name, {{.name = name + ".w", .shape = {numel}, .initial_std = 0.5f}}};
}

EngineRun nvme_run(const Combination& combination, const TemporaryFolder& folder) {
  EngineRun run;
  run.options = with(run.options, combination);
  run.options.seed = 3;
  run.options.clip = 20.0;
  run.options.swap_block_bytes = 12 * 4096;
  run.options.swap_directories = {folder.path()};
  run.steps = 3;
  return run;
}

void expect_bits_of_the_oracle(const EngineRun& run, const std::string& what) {
  EXPECT_EQ(run_engine(run).hash, run_oracle(run).hash) << what;
}

// Counts transfers where they are asked for, which no timing changes.
class CountingEngine final : public IoEngine {
 public:
  struct Counts {
    std::atomic<std::uint64_t> reads{0}, read_bytes{0}, written_bytes{0};
  };
  explicit CountingEngine(Counts& counts) : counts_(counts) {}
  std::string_view name() const override { return "counting"; }
  IoCounters counters() const override { return inner_->counters(); }
  IoTicket submit(IoDirection direction, const IoFile& file, std::uint64_t offset, HostLease buffer,
                  Bytes bytes) override {
    if (direction == IoDirection::read) ++counts_.reads;
    (direction == IoDirection::read ? counts_.read_bytes : counts_.written_bytes) += bytes;
    return inner_->submit(direction, file, offset, std::move(buffer), bytes);
  }

 private:
  Counts& counts_;
  std::unique_ptr<IoEngine> inner_ = make_thread_engine({});
};

// FIELD-CASES A8, A9: a unit of six blocks, and of parameters larger than any buffer, goes in waves.
TEST(NvmeBuffers, of_any_number_carry_units_of_more_blocks_than_there_are_buffers) {
  for (const Combination& combination : {all_nvme, device_update, host_update})
    for (const std::uint32_t buffers : {1u, 2u, 5u}) {
      const TemporaryFolder folder;
      EngineRun run = nvme_run(combination, folder);
      run.units = {matrix("six", 6 * 4096 - 7), matrix("three", 3 * 4096), matrix("part", 4097)};
      run.options.parameter_buffers = run.options.gradient_buffers = buffers;
      run.options.accumulation = buffers == 5 ? 1 : 2;
      run.options.prefetch_units = buffers;
      expect_bits_of_the_oracle(run, fmt::format("{} buffers {}", describe(combination), buffers));
    }
}

// FIELD-CASES A17: small units stay on the device and take no buffer, no read and no place on the disk.
TEST(SmallUnits, stay_on_the_device_and_starve_nobody) {
  const TemporaryFolder folder;
  EngineRun run = nvme_run({3, Tier::host, Tier::host, Tier::nvme}, folder);
  run.options.dtype = DType::f32;
  run.options.swap_block_bytes = 12 * (64 << 10);
  run.options.parameter_buffers = 4;
  run.units.clear();
  for (int u = 0; u < 1000; ++u) {
    if (u % 400 == 100) run.units.push_back(matrix(fmt::format("large.{}", u), 256 << 10));
    run.units.push_back(matrix(fmt::format("small.{}", u), 16));
  }
  run.steps = 2;
  CountingEngine::Counts counts;
  run.make_io = [&] { return std::make_unique<CountingEngine>(counts); };
  run_engine(run);
  // 3 large units of 4 blocks, gathered at most twice a step; read ahead for a third step.
  EXPECT_GE(counts.reads, 3u * 4 * 2);
  EXPECT_LE(counts.reads, 3u * 4 * 2 * 2 + 4);
}

// A run of everything on NVMe as `change` makes it, and what its fourth step moved.
struct StepTraffic {
  EngineRun run;
  Bytes read_bytes = 0, written_bytes = 0;
};
StepTraffic traffic_of_a_step(const std::function<void(EngineRun&)>& change) {
  CountingEngine::Counts counts[2];
  StepTraffic traffic;
  for (const int steps : {3, 4}) {
    const TemporaryFolder folder;
    EngineRun run = nvme_run(all_nvme, folder);
    run.steps = steps;
    change(run);
    traffic.run = run;
    run.make_io = [&] { return std::make_unique<CountingEngine>(counts[steps - 3]); };
    run_engine(run);
  }
  traffic.read_bytes = counts[1].read_bytes - counts[0].read_bytes;
  traffic.written_bytes = counts[1].written_bytes - counts[0].written_bytes;
  return traffic;
}

// Every block is read once for every gather: what is read ahead is what is used.
class ReadAheadTraffic : public ::testing::TestWithParam<int> {};

TEST_P(ReadAheadTraffic, reads_and_writes_the_planned_bytes) {
  for (const std::uint32_t buffers : {1u, 3u, 40u})
    for (const int accumulation : {1, 2}) {
      const StepTraffic traffic = traffic_of_a_step([&](EngineRun& run) {
        run.world_size = GetParam();
        run.options.parameter_buffers = buffers;
        run.options.accumulation = accumulation;
        run.options.retain_adjacent = accumulation == 1;
      });
      const IoCounters planned = plan_io(toy_plan_request(traffic.run));
      EXPECT_EQ(traffic.read_bytes, planned.read_bytes) << buffers;
      EXPECT_EQ(traffic.written_bytes, planned.written_bytes) << buffers;
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ReadAheadTraffic, ::testing::Values(1, 3),
                         ::testing::PrintToStringParamName());

// A unit that gives no gradient is not updated: none of its blocks but those that are gathered move.
TEST(UnitsWithoutAGradient, move_the_planned_bytes) {
  for (const int accumulation : {1, 2}) {
    const StepTraffic traffic = traffic_of_a_step([&](EngineRun& run) {
      run.options.accumulation = accumulation;
      run.before_step = [](int, std::uint64_t, ToyModule& module) { module.silent[0] = true; };
    });
    PlanRequest request = toy_plan_request(traffic.run);
    std::erase_if(request.hook_calls, [](const HookCall& call) {
      return call.unit_index == 0 &&
             (call.kind == HookCall::Kind::gradients_ready || call.kind == HookCall::Kind::gradient_buffer);
    });
    // The toy module leaves a silent unit's backward out, and with it the last gather of the micro-batch.
    for (int dropped = 0; dropped < 2; ++dropped)
      request.hook_calls.erase(std::find_if(request.hook_calls.rbegin(), request.hook_calls.rend(),
                                            [](const HookCall& call) { return call.unit_index == 0; })
                                   .base() -
                               1);
    const IoCounters planned = plan_io(request);
    EXPECT_LT(planned.written_bytes, plan_io(toy_plan_request(traffic.run)).written_bytes);
    EXPECT_EQ(traffic.read_bytes, planned.read_bytes) << accumulation;
    EXPECT_EQ(traffic.written_bytes, planned.written_bytes) << accumulation;
  }
}

TEST(ReadAhead, begins_before_the_first_unit_of_a_step_is_acquired) {
  const TemporaryFolder folder;
  EngineRun run = nvme_run({3, Tier::host, Tier::host, Tier::nvme}, folder);
  run.options.parameter_buffers = 4;
  run.steps = 2;
  CountingEngine::Counts counts;
  run.make_io = [&] { return std::make_unique<CountingEngine>(counts); };
  std::vector<std::uint64_t> reads;
  run.before_step = [&](int, std::uint64_t, ToyModule&) { reads.push_back(counts.reads); };
  run.inspect = [&](int, Engine& engine, Device&) {
    const std::uint64_t before = counts.reads;
    engine.read_parameters(0);  // outside micro-batches, as an evaluation does: the same units come first
    EXPECT_LE(counts.reads - before, 3u);
  };
  run_engine(run);
  ASSERT_EQ(reads.size(), 2u);
  EXPECT_EQ(reads[0], 0u);                          // no order is known yet
  const std::uint64_t gathered_blocks = 3 + 3 + 3;  // of embedding, block.0 and block.1
  EXPECT_GE(reads[1], gathered_blocks + 4);
}

// What was foreseen wrongly is dropped: an order that changes every step, and a disk that is late.
TEST(ReadAhead, that_was_wrong_changes_no_bit) {
  for (const Combination& combination : {all_nvme, device_update}) {
    const TemporaryFolder folder;
    EngineRun run = nvme_run(combination, folder);
    run.world_size = 2;
    run.options.accumulation = 2;
    run.units.clear();
    for (int u = 0; u < 5; ++u) run.units.push_back(matrix(fmt::format("block.{}", u), 10000 + u));
    const OracleResult oracle = run_oracle(run);
    run.before_step = [](int, std::uint64_t step, ToyModule& module) {
      for (std::size_t u = 0; u < module.skipped.size(); ++u)
        module.skipped[u] = step > 0 && (u + step) % 3 == 0;
    };
    run.make_io = [] {
      return make_delaying_engine(make_thread_engine({}),
                                  {.read = {.fixed = std::chrono::microseconds(300)},
                                   .write = {.fixed = std::chrono::microseconds(700)}});
    };
    EXPECT_EQ(run_engine(run).hash, oracle.hash) << describe(combination);
  }
}

// FIELD-CASES N14: late lanes, a slow link and a slow disk together.
TEST(NvmeBuffers, that_are_reused_late_change_no_bit) {
  for (const Combination& combination : {all_nvme, device_update, host_update}) {
    const TemporaryFolder folder;
    EngineRun run = nvme_run(combination, folder);
    run.options.parameter_buffers = run.options.gradient_buffers = 2;
    run.options.accumulation = 2;
    run.steps = 2;
    run.device.largest_delay_seconds = 3e-4;
    run.make_io = [] {
      return make_delaying_engine(make_thread_engine({}),
                                  {.read = {.fixed = std::chrono::microseconds(500)},
                                   .write = {.fixed = std::chrono::microseconds(200)}});
    };
    expect_bits_of_the_oracle(run, describe(combination));
  }
}

// A window of fewer micro-batches than planned, and units that miss some of them.
TEST(SumsOnNvme, of_units_that_miss_micro_batches_equal_those_in_host_memory) {
  std::vector<std::uint64_t> hashes;
  for (const Tier gradients : {Tier::host, Tier::nvme}) {
    const TemporaryFolder folder;
    EngineRun run = nvme_run({3, Tier::host, gradients, Tier::host}, folder);
    run.options.accumulation = 3;
    run.options.gradient_buffers = 2;
    run.before_micro_batch = [](std::uint64_t step, int micro_batch, ToyModule& module) {
      module.silent[1] = (static_cast<std::uint64_t>(micro_batch) + step) % 2 == 0;
      module.silent[3] = micro_batch > 0;
      module.silent[0] = step == 1;
    };
    hashes.push_back(run_engine(run).hash);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

// One of three paths goes in the middle of a run; optimizer, gradients and parameters go on by parity.
TEST(LostPath, of_three_with_parity_changes_no_bit) {
  for (const int accumulation : {1, 2}) {
    const TemporaryFolder folder;
    EngineRun run = nvme_run(all_nvme, folder);
    run.options.accumulation = accumulation;
    run.options.parameter_buffers = run.options.gradient_buffers = 3;
    run.options.swap_parity = 1;
    run.options.swap_directories.clear();
    for (const char* name : {"a", "b", "c"}) {
      std::filesystem::create_directory(folder.path() + "/" + name);
      run.options.swap_directories.push_back(folder.path() + "/" + name);
    }
    const auto plan = std::make_shared<FaultPlan>();
    run.make_io = [&] {
      return make_delaying_engine(make_fault_engine(make_thread_engine({}), plan),
                                  {.read = {.fixed = std::chrono::microseconds(100)},
                                   .write = {.fixed = std::chrono::microseconds(200)}});
    };
    run.before_micro_batch = [&](std::uint64_t step, int micro_batch, ToyModule&) {
      if (step != 1 || micro_batch != accumulation - 1) return;
      for (const char* files : {"b/rank-00000/extents.bin", "b/rank-00000/scratch/extents.bin"})
        plan->add({.path_suffix = files, .code = ENODEV});
    };
    expect_bits_of_the_oracle(run, fmt::format("accumulation {}", accumulation));
    EXPECT_GT(plan->hits(), 1u);
  }
}

struct Fault {
  const char* name;
  IoDirection direction;
  const char* kind;  // of block, as the error names it
  Combination combination;
  int accumulation;
};

class FailingDisk : public ::testing::TestWithParam<Fault> {};

// On every rank the run ends; the rank whose disk failed names the block.
TEST_P(FailingDisk, is_an_error_that_names_the_block) {
  const Fault& fault = GetParam();
  for (const int world_size : {1, 3}) {
    const TemporaryFolder folder;
    EngineRun run = nvme_run(fault.combination, folder);
    run.world_size = world_size;
    run.options.accumulation = fault.accumulation;
    auto plan = std::make_shared<FaultPlan>();
    run.make_io = [&] { return make_fault_engine(make_thread_engine({}), plan); };
    run.before_step = [&](int rank, std::uint64_t step, ToyModule&) {
      // Only scratch files fail, from the second step on.
      if (rank == 0 && step == 1)
        plan->add(
            {.direction = fault.direction, .path_suffix = "scratch/extents.bin", .first = 2, .code = EIO});
    };
    std::string message;
    try {
      run_engine(run);
    } catch (const IoError& error) {
      message = error.what();
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_THAT(message, HasSubstr("swap block")) << "ranks " << world_size;
    EXPECT_THAT(message, HasSubstr(fault.kind)) << "ranks " << world_size;
    EXPECT_THAT(message, HasSubstr("scratch")) << "ranks " << world_size;
    EXPECT_GT(plan->hits(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, FailingDisk,
    ::testing::Values(
        Fault{
            "parameter_read", IoDirection::read, "parameters of", {3, Tier::host, Tier::host, Tier::nvme}, 1},
        Fault{"parameter_write_of_a_host_update",
              IoDirection::write,
              "parameters of",
              {3, Tier::host, Tier::host, Tier::nvme},
              1},
        Fault{"parameter_write_of_a_device_update",
              IoDirection::write,
              "parameters of",
              {3, Tier::device, Tier::host, Tier::nvme},
              1},
        Fault{"gradient_write",
              IoDirection::write,
              "gradients of",
              {2, Tier::host, Tier::nvme, Tier::device},
              1},
        Fault{"gradient_read_of_a_host_update",
              IoDirection::read,
              "gradients of",
              {2, Tier::host, Tier::nvme, Tier::device},
              1},
        Fault{"gradient_read_of_a_device_update",
              IoDirection::read,
              "gradients of",
              {2, Tier::device, Tier::nvme, Tier::device},
              1},
        Fault{"sum_write",
              IoDirection::write,
              "gradient sums of",
              {2, Tier::host, Tier::nvme, Tier::device},
              2},
        Fault{
            "sum_read", IoDirection::read, "gradient sums of", {2, Tier::host, Tier::nvme, Tier::device}, 2}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST(ScratchStore, is_gone_after_the_run_and_one_left_behind_is_reclaimed) {
  const TemporaryFolder folder;
  const std::filesystem::path rank = std::filesystem::path(folder.path()) / "rank-00000";
  EngineRun run = nvme_run(host_update, folder);
  run.steps = 1;
  run.inspect = [&](int, Engine&, Device&) {
    EXPECT_TRUE(std::filesystem::exists(rank / "scratch/extents.bin"));
  };
  const std::uint64_t hash = run_engine(run).hash;
  EXPECT_FALSE(std::filesystem::exists(rank));
  // As a killed run leaves it.
  std::filesystem::create_directories(rank);
  const auto io = make_thread_engine({});
  (void)SwapStore::create(
      {.directories = {(rank / "scratch").string()}, .durability = Durability::none, .layout = "{}"},
      {{"old", 1 << 20}}, *io);
  EXPECT_EQ(run_engine(run).hash, hash);
  EXPECT_FALSE(std::filesystem::exists(rank / "scratch"));
  (void)SwapStore::create(
      {.directories = {(rank / "scratch").string()}, .durability = Durability::none, .layout = "{}"},
      {{"old", 1 << 20}}, *io);
  run.options = with(run.options, {3, Tier::nvme, Tier::host, Tier::host});  // needs none
  run.inspect = {};
  run_engine(run);
  EXPECT_FALSE(std::filesystem::exists(rank / "scratch"));
}

}  // namespace
}  // namespace headrace::testing
