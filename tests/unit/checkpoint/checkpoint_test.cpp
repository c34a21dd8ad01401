// Checkpoints of an engine: what one number of ranks, stage, tiers, block size and types of states wrote,
// another reads.
#include "headrace/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "headrace/errors.h"
#include "headrace/files.h"
#include "tests/support/engine_harness.h"

namespace headrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckpointTest : public ::testing::Test {
 protected:
  EngineRun run_of(int world_size, const Combination& combination, int steps = 2) {
    EngineRun run;
    run.options = with(run.options, combination);
    run.options.dtype = DType::bf16;
    run.options.host_memory_bytes = 64 << 20;
    run.options.swap_block_bytes = 96 << 10;
    run.world_size = world_size;
    run.steps = steps;
    if (combination.uses_nvme())
      run.options.swap_directories = {folder_.path(fmt::format("swap-{}", ++runs_))};
    return run;
  }

  // Saves after the last step.
  EngineRunResult save(EngineRun run, std::uint64_t keep_last = 0) {
    run.finish = [&](const EngineRun::Rank& at, const TrainingState& state) {
      Checkpointer checkpointer(at.engine, at.io, at.communicator, at.device, at.options,
                                {.directory = checkpoints(),
                                 .keep_last = keep_last,
                                 .leads_host = at.rank == 0,
                                 .written_by = "test",
                                 .model = ""});
      const Checkpointer::Saved saved = checkpointer.save(state);
      if (at.rank == 0) saved_ = saved;
    };
    return run_engine(run);
  }

  // Loads the last one saved before the first step.
  EngineRunResult load(EngineRun run, const LoadOptions& options = {}) {
    run.begin = [&](const EngineRun::Rank& at, const TrainingState& start) {
      LoadOptions here = options;
      here.start = start;
      return load_checkpoint(saved_.path, at.engine, at.io, here);
    };
    return run_engine(run);
  }

  std::string checkpoints() const { return folder_.path("checkpoints"); }
  std::vector<std::string> names() const { return folder_.names("checkpoints"); }

  TemporaryFolder folder_;
  Checkpointer::Saved saved_;
  int runs_ = 0;
};

constexpr Combination on_device{0, Tier::device, Tier::device, Tier::device},
    sharded_host{1, Tier::host, Tier::device, Tier::device}, stage_2{2, Tier::host, Tier::host, Tier::device},
    all_host{3, Tier::host, Tier::host, Tier::host}, all_nvme{3, Tier::nvme, Tier::nvme, Tier::nvme};
const Combination various[] = {on_device, sharded_host, stage_2, all_nvme};

// C1, C3, C4, C8, C22
TEST_F(CheckpointTest, loads_at_any_world_size_stage_tier_and_block_size_with_the_same_state_hash) {
  const std::pair<int, std::vector<int>> sizes[] = {{4, {1, 2, 3, 8}}, {3, {4}}, {1, {4, 1}}};
  std::size_t next = 0;
  for (const auto& [saved_at, loaded_at] : sizes)
    for (const Combination& from : various) {
      std::filesystem::remove_all(checkpoints());
      const EngineRunResult saved = save(run_of(saved_at, from));
      for (const int size : loaded_at) {
        const Combination& to = various[next++ % std::size(various)];
        EngineRun run = run_of(size, to, 0);
        run.options.swap_block_bytes = next % 2 == 0 ? 48 << 10 : 288 << 10;
        const EngineRunResult loaded = load(run);
        EXPECT_EQ(loaded.hash, saved.hash)
            << describe(from) << " at " << saved_at << " -> " << describe(to) << " at " << size;
        EXPECT_EQ(loaded.state.data_position, saved.state.data_position);
        EXPECT_EQ(loaded.state.iteration, saved.state.iteration);
      }
    }
}

// C15, C21
TEST_F(CheckpointTest, a_run_goes_on_from_one_bit_by_bit_at_the_same_world_size) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Combination& combination : various)
      for (const int steps_before : {0, 3}) {
        std::filesystem::remove_all(checkpoints());
        const auto run_for = [&](int steps) {
          EngineRun run = run_of(2, combination, steps);
          run.options.dtype = dtype;
          return run;
        };
        const EngineRunResult whole = run_engine(run_for(steps_before + 3));
        save(run_for(steps_before));
        const EngineRunResult continued = load(run_for(3));
        EXPECT_EQ(continued.hash, whole.hash) << describe(combination) << " after " << steps_before;
        EXPECT_EQ(continued.steps.back().step, whole.steps.back().step);
      }
}

struct Formats {
  OptimizerKind kind;
  MasterDType master;
  MomentDType moments;
};
EngineRun with_states(EngineRun run, const Formats& formats) {
  run.options.optimizer.kind = formats.kind;
  run.options.master_dtype = formats.master;
  run.options.moment_dtype = formats.moments;
  return run;
}

TEST_F(CheckpointTest, every_format_of_states_is_kept_bit_by_bit) {
  using enum OptimizerKind;
  for (const Formats& formats : {Formats{adam, MasterDType::bf16, MomentDType::bf16},
                                 {adam, MasterDType::f32, MomentDType::int8},
                                 {adam, MasterDType::none, MomentDType::int8},
                                 {lion, MasterDType::none, MomentDType::bf16},
                                 {adagrad, MasterDType::f32, MomentDType::int8},
                                 {sgd, MasterDType::f32, MomentDType::f32}}) {
    std::filesystem::remove_all(checkpoints());
    const bool own_master = formats.master == MasterDType::none;  // it lies where the parameters do
    const EngineRunResult saved =
        save(with_states(run_of(3, own_master ? on_device : sharded_host), formats));
    const EngineRunResult loaded = load(with_states(run_of(2, own_master ? all_host : all_nvme, 0), formats));
    EXPECT_EQ(loaded.hash, saved.hash)
        << name_of(formats.kind) << ' ' << name_of(formats.master) << ' ' << name_of(formats.moments);
  }
}

std::vector<float> masters_of(Engine& engine) {
  std::vector<float> values;
  engine.visit_optimizer_state([&](UnitId, std::uint64_t, int kind, std::span<const float> part) {
    if (kind == 0) values.insert(values.end(), part.begin(), part.end());
  });
  return values;
}

// C14
TEST_F(CheckpointTest, states_of_another_type_are_converted_and_widened_again_without_a_difference) {
  const Formats wide{OptimizerKind::adam, MasterDType::f32, MomentDType::f32};
  for (const MomentDType moments : {MomentDType::bf16, MomentDType::int8}) {
    std::filesystem::remove_all(checkpoints());
    const Formats narrow{OptimizerKind::adam, MasterDType::bf16, moments};
    save(with_states(run_of(2, sharded_host), wide));
    EngineRun rounding = with_states(run_of(1, on_device, 0), narrow);
    rounding.begin = [&](const EngineRun::Rank& at, const TrainingState&) {
      return load_checkpoint(find_checkpoints(checkpoints()).back().path, at.engine, at.io, {});
    };
    const EngineRunResult rounded = save(rounding);  // the same step again
    const EngineRunResult widened = load(with_states(run_of(3, stage_2, 0), wide));
    EXPECT_EQ(widened.hash, rounded.hash) << name_of(moments);
    EXPECT_THAT(conversions({}, {.master = MasterDType::bf16, .moments = moments}),
                ElementsAre("the master is rounded from fp32 to bf16",
                            fmt::format("moments are rounded from fp32 to {}", name_of(moments))));
  }
}

// C13
TEST_F(CheckpointTest, weights_alone_are_loaded_with_moments_and_steps_that_begin_anew) {
  std::vector<float> before, after;
  EngineRun run = run_of(1, sharded_host);
  run.inspect = [&](int, Engine& engine, Device&) { before = masters_of(engine); };
  save(run);
  EngineRun fresh =
      with_states(run_of(1, on_device, 0), {OptimizerKind::lion, MasterDType::f32, MomentDType::f32});
  bool zero = true;
  fresh.inspect = [&](int, Engine& engine, Device&) {
    after = masters_of(engine);
    engine.visit_optimizer_state([&](UnitId, std::uint64_t, int kind, std::span<const float> part) {
      for (const float value : part) zero = zero && (kind == 0 || value == 0);
    });
    EXPECT_EQ(engine.steps_applied(), 0u);
  };
  const EngineRunResult loaded = load(fresh, {.weights_only = true});
  EXPECT_EQ(after, before);
  EXPECT_TRUE(zero);
  EXPECT_EQ(loaded.state.iteration, 0u);
}

// C19
TEST_F(CheckpointTest, all_differences_of_another_model_are_listed_and_nothing_is_changed) {
  save(run_of(2, sharded_host));
  EngineRun other = run_of(1, on_device, 0);
  ASSERT_GE(other.units.size(), 2u);
  ParameterSpec& renamed = other.units.front().parameters.front();
  const std::string old_name = renamed.name;
  renamed.name = "renamed";
  ParameterSpec& reshaped = other.units.back().parameters.front();
  reshaped.shape.push_back(1);
  try {
    load(other);
    ADD_FAILURE() << "another model was loaded";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("renamed is not in it"), HasSubstr(old_name + " is not in the model"),
                      HasSubstr(reshaped.name + " is ["), HasSubstr("nothing was loaded")));
  }
  EXPECT_THROW(
      load(with_states(run_of(1, on_device, 0), {OptimizerKind::lion, MasterDType::f32, MomentDType::f32})),
      UsageError);
}

// C20
TEST_F(CheckpointTest, a_flipped_bit_a_missing_byte_an_empty_and_a_missing_file_are_named) {
  save(run_of(2, sharded_host));
  const std::string path = saved_.path;
  const auto refusal = [&] {
    try {
      load(run_of(1, on_device, 0));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("loaded");
  };
  for (const std::string& name : folder_.names("checkpoints/" + checkpoint_name(2))) {
    const std::string file = path + "/" + name;
    std::vector<std::byte> whole = files::read_file(file);
    const auto write = [&](std::span<const std::byte> bytes) {
      std::ofstream(file, std::ios::binary | std::ios::trunc)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    };
    for (const std::size_t at : {whole.size() / 2, whole.size() - 2}) {
      if (name.starts_with("rank") && at < 8192) continue;  // headers are not read by loading
      whole[at] ^= std::byte{0x10};
      write(whole);
      whole[at] ^= std::byte{0x10};
      EXPECT_THAT(refusal(), HasSubstr(name)) << at;
    }
    write(std::span(whole).first(whole.size() - 1));
    EXPECT_THAT(refusal(), HasSubstr(name)) << "one byte short";
    write({});
    EXPECT_THAT(refusal(), HasSubstr(name)) << "empty";
    std::filesystem::remove(file);
    EXPECT_THAT(refusal(), HasSubstr(name)) << "missing";
    write(whole);
  }
  EXPECT_EQ(refusal(), "loaded");
}

TEST_F(CheckpointTest, the_oldest_are_removed_and_the_newest_of_a_run_that_went_back_is_the_last_saved) {
  for (const int steps : {1, 2, 3}) save(run_of(1, on_device, steps), 2);
  EXPECT_THAT(names(), ElementsAre("latest", "lock", checkpoint_name(2), checkpoint_name(3)));
  save(run_of(1, on_device, 1), 2);
  EXPECT_THAT(names(), ElementsAre("latest", "lock", checkpoint_name(1), checkpoint_name(3)));
  EXPECT_EQ(find_checkpoints(checkpoints()).back().step, 1u);
}

TEST_F(CheckpointTest, one_of_the_same_step_is_replaced_whole_and_half_done_ones_go) {
  save(run_of(2, sharded_host));
  std::filesystem::create_directories(checkpoints() + "/step-00000009.partial");
  const EngineRunResult again = save(run_of(1, on_device));
  EXPECT_THAT(names(), ElementsAre("latest", "lock", checkpoint_name(2)));
  EXPECT_THAT(folder_.names("checkpoints/" + checkpoint_name(2)),
              ElementsAre("manifest.json", "rank-00000-of-00001.safetensors"));
  EXPECT_EQ(load(run_of(3, stage_2, 0)).hash, again.hash);
}

TEST_F(CheckpointTest, two_jobs_do_not_save_in_one_folder) {
  std::filesystem::create_directories(checkpoints());
  const Fd other = files::open_file(checkpoints() + "/lock", O_RDWR | O_CREAT);
  ASSERT_EQ(::flock(other.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_THROW(save(run_of(2, on_device, 0)), Error);
}

}  // namespace
}  // namespace headrace::testing
