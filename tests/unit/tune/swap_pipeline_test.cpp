#include "src/tune/swap_pipeline.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "headrace/backends.h"
#include "headrace/errors.h"
#include "headrace/swap_store.h"
#include "src/tune/trials.h"
#include "src/tune/tune_files.h"
#include "src/tune/tune_space.h"
#include "tests/support/engine_harness.h"

namespace headrace::tune {
namespace {

namespace fs = std::filesystem;
using headrace::testing::TemporaryFolder;

constexpr std::uint64_t some_parameters = 300'000;  // ends within a block, and within a norm chunk

SwapPipelineOptions small_pipeline(const std::string& folder) {
  return {.point = {.block_bytes = 384 << 10, .buffers = 4, .queue_depth = 8, .request_bytes = 128 << 10},
          .parameters = some_parameters,
          .folders = {folder}};
}

// What the swap store holds, as CRCs of its blocks.
std::vector<std::uint32_t> checksums(const std::string& folder) {
  const auto io = make_io(IoKind::automatic, {});
  const auto store = SwapStore::open_read_only({folder}, *io);
  std::vector<std::uint32_t> crcs;
  for (std::uint32_t b = 0; b < store->blocks().size(); ++b) crcs.push_back(store->extents(b).front().crc32c);
  return crcs;
}

TEST(SwapPipeline, a_step_moves_twelve_bytes_a_parameter_each_way) {
  const TemporaryFolder folder;
  SwapPipeline pipeline(small_pipeline(folder.path() + "/store"));
  for (const UpdateKind kind : {UpdateKind::real, UpdateKind::null}) {
    const SwapStep step = pipeline.step(kind);
    EXPECT_GE(step.read_bytes, 12 * some_parameters);
    EXPECT_LT(step.read_bytes, 12 * some_parameters + 4096 * pipeline.blocks());
    EXPECT_EQ(step.written_bytes, step.read_bytes);
    EXPECT_GT(step.seconds, 0);
  }
  EXPECT_EQ(pipeline.blocks(), 10u);  // 32768 elements each
}

TEST(SwapPipeline, a_step_of_states_of_fewer_bits_moves_their_bytes_and_planned_memory) {
  for (const auto& [moments, bytes] : {std::pair{MomentDType::bf16, 6.0}, {MomentDType::int8, 4.125}}) {
    const TemporaryFolder folder;
    SwapPipelineOptions options = small_pipeline(folder.path() + "/store");
    options.states = {.master = MasterDType::bf16, .moments = moments};
    SwapPipeline pipeline(options);
    const SwapStep step = pipeline.step(UpdateKind::real);
    EXPECT_GE(static_cast<double>(step.read_bytes), bytes * some_parameters);
    EXPECT_LT(static_cast<double>(step.read_bytes),
              bytes * some_parameters + 4096.0 * static_cast<double>(pipeline.blocks()));
    EXPECT_EQ(step.written_bytes, step.read_bytes);
    EXPECT_LE(pipeline.block_bytes(), options.point.block_bytes);
    EXPECT_EQ(pipeline.host_bytes(), planned_host_bytes(options));
  }
}

TEST(SwapPipeline, a_null_step_changes_no_byte_and_a_real_one_changes_every_block) {
  const TemporaryFolder folder;
  const std::string store = folder.path() + "/store";
  SwapPipeline pipeline(small_pipeline(store));
  const auto initial = checksums(store);
  EXPECT_EQ(pipeline.step(UpdateKind::null).update_seconds, 0);
  EXPECT_EQ(checksums(store), initial);
  EXPECT_GT(pipeline.step(UpdateKind::real).update_seconds, 0);
  const auto changed = checksums(store);
  for (std::size_t b = 0; b < initial.size(); ++b) EXPECT_NE(changed[b], initial[b]) << "block " << b;
}

// Its memory is that of the buffers, whatever the number of parameters.
TEST(SwapPipeline, memory_does_not_grow_with_the_parameters) {
  const TemporaryFolder folder;
  SwapPipelineOptions options = small_pipeline(folder.path() + "/store");
  const Bytes small = SwapPipeline(options).host_bytes();
  options.parameters *= 10;
  options.folders = {folder.path() + "/larger"};
  const Bytes large = SwapPipeline(options).host_bytes();
  EXPECT_LT(large, small + 16384);  // norms: 8 bytes for 4096 parameters
}

TEST(SwapPipeline, goes_on_with_the_store_of_another_one_with_other_buffers) {
  const TemporaryFolder folder;
  SwapPipelineOptions options = small_pipeline(folder.path() + "/store");
  {
    SwapPipeline pipeline(options);
    (void)pipeline.step(UpdateKind::real);
  }
  const auto left = checksums(options.folders.front());
  options.reuse = true;
  options.point.buffers = 6;
  options.point.io = IoKind::threads;
  SwapPipeline pipeline(options);
  EXPECT_EQ(pipeline.io_name(), "threads");
  EXPECT_EQ(checksums(options.folders.front()), left);
  (void)pipeline.step(UpdateKind::null);
  EXPECT_EQ(checksums(options.folders.front()), left);
}

TEST(SwapPipeline, beyond_its_memory_limit_does_not_fit) {
  const TemporaryFolder folder;
  SwapPipelineOptions options = small_pipeline(folder.path() + "/store");
  options.host_memory_bytes = 1 << 20;
  EXPECT_THROW(SwapPipeline{options}, DoesNotFit);
}

TEST(TuneFiles, are_gone_at_the_end_and_what_a_killed_process_left_at_the_start) {
  const TemporaryFolder folder;
  const std::string ours = folder.path() + "/headrace-tune";
  fs::create_directories(ours + "/block-3145728");
  std::ofstream(ours + "/lock");
  std::ofstream(ours + "/block-3145728/extents.bin") << "left over";
  {
    const TuneFiles files({folder.path()});
    EXPECT_FALSE(fs::exists(ours + "/block-3145728"));
    fs::create_directories(files.paths_of("store").front());
  }
  EXPECT_FALSE(fs::exists(ours));
  EXPECT_TRUE(fs::exists(folder.path()));
}

TEST(TuneFiles, refuse_a_second_owner_and_folders_that_are_not_theirs) {
  const TemporaryFolder folder;
  {
    const TuneFiles files({folder.path()});
    EXPECT_THROW(TuneFiles({folder.path()}), UsageError);
  }
  fs::create_directories(folder.path() + "/headrace-tune");
  std::ofstream(folder.path() + "/headrace-tune/thesis.txt") << "precious";
  EXPECT_THROW(TuneFiles({folder.path()}), UsageError);
  EXPECT_TRUE(fs::exists(folder.path() + "/headrace-tune/thesis.txt"));
  EXPECT_THROW(TuneFiles({folder.path() + "/missing"}), UsageError);
}

// FIELD-CASES T5: a failing trial is told with its cause, and the search goes on.
TEST(Trials, a_point_that_does_not_fit_is_a_trial_with_its_cause) {
  const TemporaryFolder folder;
  const TuneFiles files({folder.path()});
  TuneOptions options;
  options.swap_paths = {folder.path()};
  options.host_memory_bytes = 3 << 20;
  Trials trials(options, {{.name = "one", .paths = {0}, .rates = {}}}, files, some_parameters, 0.01);
  const auto never = [] { return false; };
  SwapPoint point = small_pipeline("").point;
  EXPECT_GT(trials.run(point, never).parameters_per_second, 0);
  const std::string store = trials.paths_of(point, "block-393216-placement-0").front();
  const auto commits = [&] { return std::filesystem::last_write_time(store + "/store.json"); };
  const auto made = commits();
  point.buffers = 64;
  const TuneTrial failed = trials.run(point, never);
  EXPECT_NE(failed.failure.find("memory"), std::string::npos) << failed.failure;
  EXPECT_EQ(failed.failure.find('\n'), std::string::npos);
  point.buffers = 4;
  EXPECT_GT(trials.run(point, never).parameters_per_second, 0);
  EXPECT_EQ(commits(), made) << "the store that was good was made again";
}

TEST(Trials, make_a_store_again_that_is_corrupt) {
  const TemporaryFolder folder;
  const TuneFiles files({folder.path()});
  TuneOptions options;
  Trials trials(options, {{.name = "one", .paths = {0}, .rates = {}}}, files, some_parameters, 0.01);
  const auto never = [] { return false; };
  const SwapPoint point = small_pipeline("").point;
  EXPECT_EQ(trials.run(point, never).failure, "");
  const std::string store = trials.paths_of(point, "block-393216-placement-0").front();
  for (const auto& entry : fs::directory_iterator(store))
    if (entry.file_size() > (1 << 20)) {
      std::fstream extents(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      const std::string garbage(entry.file_size(), '!');
      extents.write(garbage.data(), static_cast<std::streamsize>(garbage.size()));
    }
  EXPECT_NE(trials.run(point, never).failure, "");
  EXPECT_FALSE(fs::exists(store));
  EXPECT_EQ(trials.run(point, never).failure, "");
}

// Blocks on two paths in proportion, on one of them alone, and with one of three that may be lost.
TEST(Trials, run_over_several_paths) {
  const TemporaryFolder first, second, third;
  for (const std::uint32_t parity : {0u, 1u}) {
    TuneOptions options;
    options.swap_paths = {first.path(), second.path(), third.path()};
    options.parity = parity;
    const TuneFiles files(options.swap_paths);
    const auto placements = make_placements(options.swap_paths, {1e9, 2e9, 1e9}, parity);
    EXPECT_EQ(placements.size(), parity > 0 ? 1u : 5u);
    Trials trials(options, placements, files, some_parameters, 0.01);
    for (std::uint32_t placement = 0; placement < placements.size(); ++placement) {
      SwapPoint point = small_pipeline("").point;
      point.placement = placement;
      const TuneTrial trial = trials.run(point, [] { return false; });
      EXPECT_EQ(trial.failure, "") << placements[placement].name;
      EXPECT_GT(trial.parameters_per_second, 0);
      const std::size_t used = trials.paths_of(point, "x").size();
      EXPECT_EQ(used, placements[placement].paths.size());
    }
  }
}

TEST(Trials, keep_no_more_than_a_few_stores_on_the_drive) {
  const TemporaryFolder folder;
  const TuneFiles files({folder.path()});
  TuneOptions options;
  Trials trials(options, {{.name = "one", .paths = {0}, .rates = {}}}, files, some_parameters, 0.01);
  for (const Bytes block : {384 << 10, 768 << 10, 1536 << 10, 3 << 20, 6 << 20}) {
    SwapPoint point = small_pipeline("").point;
    point.block_bytes = block;
    EXPECT_EQ(trials.run(point, [] { return false; }).failure, "");
    const auto stores = std::distance(fs::directory_iterator(folder.path() + "/headrace-tune"), {});
    EXPECT_LE(stores, 3 + 1);  // and the lock
  }
}

}  // namespace
}  // namespace headrace::tune
