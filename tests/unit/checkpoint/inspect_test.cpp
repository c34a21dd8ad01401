// What inspect says of healthy, damaged, incomplete and running swap paths.
#include "headrace/inspect.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "headrace/errors.h"
#include "tests/unit/checkpoint/engine_store.h"
#include "tests/unit/swap/store_fixture.h"

namespace headrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class InspectTest : public ::testing::Test {
 protected:
  std::string rank_folder(std::uint32_t rank) const { return folder_.path(fmt::format("rank-{:05}", rank)); }
  // Every rank has committed `step` and the step before it, and closed its store.
  void make(std::uint32_t world_size, int stage, std::uint64_t block_numel, std::uint64_t step = 4) {
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
      EngineStore store(rank_folder(rank), rank, world_size, stage, block_numel, *engine_);
      store.commit(step - 1);
      store.release();
      store.commit(step);
    }
  }
  // One rank on folders a, b, c, ...
  void make_on_paths(std::uint32_t paths, std::uint32_t parity) {
    std::vector<std::string> folders;
    for (std::uint32_t path = 0; path < paths; ++path) {
      const std::string folder = folder_.path(std::string(1, static_cast<char>('a' + path)));
      std::filesystem::create_directory(folder);
      folders.push_back(folder + "/rank-00000");
    }
    EngineStore store(folders, parity, 400, *engine_);
    store.commit(3);
    store.release();
    store.commit(4);
  }
  InspectReport inspect(InspectOptions options = {.verify = true, .hash = true}) {
    return inspect_swap_path({folder_.path()}, options, *engine_);
  }

  TemporaryFolder folder_{memory_folder()};
  std::unique_ptr<IoEngine> engine_ = make_thread_engine({});
};

TEST_F(InspectTest, the_hash_equals_its_definition_whatever_the_world_size_stage_and_block_size) {
  for (const std::uint32_t world_size : {1u, 2u, 3u})
    for (const int stage : {0, 1, 3})
      for (const std::uint64_t block_numel : {64ull, 333ull, 5000ull}) {
        make(world_size, stage, block_numel);
        const InspectReport report = inspect();
        EXPECT_THAT(report.problems, ::testing::IsEmpty());
        ASSERT_TRUE(report.state_hash.has_value()) << world_size << stage << block_numel;
        EXPECT_EQ(*report.state_hash, expected_hash(4)) << world_size << stage << block_numel;
        for (std::uint32_t rank = 0; rank < world_size; ++rank)
          std::filesystem::remove_all(rank_folder(rank));
      }
}

TEST_F(InspectTest, the_report_says_who_what_and_how_much) {
  make(2, 3, 200);
  const InspectReport report = inspect({.verify = true});
  ASSERT_EQ(report.ranks.size(), 2u);
  const InspectedRank& rank = report.ranks[1];
  EXPECT_EQ(rank.rank, 1u);
  EXPECT_EQ(rank.world_size, 2u);
  EXPECT_EQ(rank.stage, 3);
  EXPECT_EQ(rank.dtype, "bf16");
  EXPECT_TRUE(rank.optimizer_sharded);
  EXPECT_EQ(rank.owner.state, SwapOwner::State::none);
  EXPECT_EQ(rank.steps, (std::vector<std::uint64_t>{3, 4}));
  EXPECT_EQ(rank.units, 3u);
  EXPECT_EQ(rank.parameters, 6u);
  EXPECT_EQ(rank.parameter_numel, 1395u);
  EXPECT_EQ(rank.blocks_bytes, 12u * (500 + 231 + 3));
  EXPECT_EQ(rank.checked_bytes, rank.blocks_bytes);
  EXPECT_EQ(report.step, 4u);
  EXPECT_EQ(report.steps_applied, 3u);
  EXPECT_EQ(report.data_position, 32u);
  EXPECT_FALSE(report.state_hash.has_value());
  const std::string text = to_text(report);
  EXPECT_THAT(text, HasSubstr("rank 1 of 2: " + rank_folder(1)));
  EXPECT_THAT(text, HasSubstr("steps       3, 4"));
  EXPECT_THAT(text, HasSubstr("none (closed cleanly)"));
}

TEST_F(InspectTest, json_holds_the_hash_as_16_digits) {
  make(1, 1, 100);
  const auto object = nlohmann::json::parse(to_json(inspect()));
  EXPECT_EQ(object.at("state_hash"), fmt::format("{:016x}", expected_hash(4)));
  EXPECT_EQ(object.at("good"), true);
  EXPECT_EQ(object.at("step"), 4);
  EXPECT_EQ(object.at("ranks").at(0).at("owner").at("state"), "none");
  EXPECT_EQ(nlohmann::json::parse(to_json(inspect({}))).at("state_hash"), nullptr);
}

TEST_F(InspectTest, ranks_one_step_apart_are_hashed_at_the_step_that_all_have) {
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    EngineStore store(rank_folder(rank), rank, 2, 2, 150, *engine_);
    store.commit(3);
    if (rank == 0) continue;
    store.release();
    store.commit(4);
  }
  const InspectReport report = inspect();
  EXPECT_TRUE(report.good());
  EXPECT_EQ(report.step, 3u);
  EXPECT_EQ(report.state_hash, expected_hash(3));
  EXPECT_THAT(report.notes, ::testing::Contains(HasSubstr("last steps differ; step 3")));
}

TEST_F(InspectTest, ranks_without_a_common_step_are_a_problem) {
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    EngineStore(rank_folder(rank), rank, 2, 2, 150, *engine_).commit(3 + rank);
  const InspectReport report = inspect();
  EXPECT_FALSE(report.good());
  EXPECT_FALSE(report.state_hash.has_value());
}

TEST_F(InspectTest, one_flipped_bit_is_reported_with_its_block_and_there_is_no_hash) {
  make(2, 3, 200);
  const auto store = SwapStore::open_read_only({rank_folder(1)}, *engine_);
  const SwapStore::Extent extent = store->extents(1)[0];
  flip_bit(extent.path, extent.offset + 5);
  const InspectReport report = inspect();
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_THAT(report.problems[0], HasSubstr(store->blocks()[1].name));
  EXPECT_THAT(report.problems[0], HasSubstr(extent.path));
  EXPECT_FALSE(report.state_hash.has_value());
  EXPECT_TRUE(inspect({}).good());  // without reading, nothing is known to be wrong
}

TEST_F(InspectTest, an_older_step_that_is_not_whole_any_more_is_noted_by_verify_and_no_damage) {
  make(1, 1, 200);
  auto store = SwapStore::open_read_only({rank_folder(0)}, *engine_);
  store->position_at(3);
  const SwapStore::Extent older = store->extents(0)[0];
  flip_bit(older.path, older.offset);
  EXPECT_THAT(inspect({.hash = true}).notes, ::testing::IsEmpty());
  const InspectReport report = inspect({.verify = true});
  EXPECT_TRUE(report.good());
  EXPECT_THAT(report.notes, ::testing::ElementsAre(HasSubstr("of step 3, which step 4 replaced")));
}

TEST_F(InspectTest, a_missing_rank_prevents_the_hash_of_sharded_states_only) {
  make(3, 3, 200);
  std::filesystem::remove_all(rank_folder(1));
  EXPECT_THAT(inspect().problems, ::testing::Contains(HasSubstr("not here: 1")));
  EXPECT_TRUE(inspect({.verify = true}).good());
  for (std::uint32_t rank : {0u, 2u}) std::filesystem::remove_all(rank_folder(rank));
  make(3, 0, 200);
  std::filesystem::remove_all(rank_folder(1));
  EXPECT_EQ(inspect().state_hash, expected_hash(4));
}

TEST_F(InspectTest, replicated_states_that_differ_are_a_problem) {
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    EngineStore store(rank_folder(rank), rank, 2, 0, 300, *engine_);
    if (rank == 0) store.commit(4);
    if (rank == 1) {
      store.commit(3);
      store.release();
      // Step 4 without its writes.
      (*store).commit({4, SwapStore::describe({rank_folder(0)}).commits.back().metadata});
    }
  }
  EXPECT_THAT(inspect().problems, ::testing::Contains(HasSubstr("different optimizer states")));
}

TEST_F(InspectTest, training_states_that_differ_are_a_problem) {
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    EngineStore(rank_folder(rank), rank, 2, 3, 300, *engine_).commit(4, rank == 0 ? 1.0 : 2.0);
  EXPECT_THAT(inspect().problems, ::testing::Contains(HasSubstr("not of the same run")));
}

TEST_F(InspectTest, stores_of_different_runs_are_a_problem) {
  EngineStore(rank_folder(0), 0, 2, 3, 300, *engine_).commit(4);
  EngineStore(rank_folder(1), 1, 3, 3, 300, *engine_).commit(4);
  EXPECT_THAT(inspect().problems, ::testing::Contains(HasSubstr("another run")));
}

TEST_F(InspectTest, one_rank_folder_can_be_given_by_itself) {
  make(1, 1, 200);
  const InspectReport report = inspect_swap_path({rank_folder(0)}, {.hash = true}, *engine_);
  EXPECT_EQ(report.state_hash, expected_hash(4));
}

TEST_F(InspectTest, a_live_owner_and_a_killed_one_are_told_apart) {
  EngineStore store(rank_folder(0), 0, 1, 1, 200, *engine_);
  store.commit(4);
  const InspectReport report = inspect();
  EXPECT_EQ(report.ranks[0].owner.state, SwapOwner::State::alive);
  EXPECT_EQ(report.state_hash, expected_hash(4));
  std::ofstream(rank_folder(0) + "/lock") << "pid 999999999\nhost gone\n";
  EXPECT_NE(inspect({}).ranks[0].owner.state, SwapOwner::State::alive);
}

TEST_F(InspectTest, durability_none_is_said_to_keep_nothing) {
  EngineStore(rank_folder(0), 0, 1, 1, 200, *engine_, Durability::none).commit(4);
  const InspectReport report = inspect({.verify = true});
  EXPECT_TRUE(report.good());
  EXPECT_FALSE(report.step.has_value());
  EXPECT_THAT(report.notes, ::testing::Contains(HasSubstr("durability none")));
}

TEST_F(InspectTest, a_block_never_written_is_a_problem) {
  EngineStore store(rank_folder(0), 0, 1, 1, 200, *engine_);
  (*store).commit({1, R"({"data_position":0,"rng_state":0,"steps_applied":0,"loss_scale":1.0})"});
  EXPECT_THAT(inspect().problems, ::testing::Contains(HasSubstr("never written")));
}

TEST_F(InspectTest, a_path_without_a_store_is_a_usage_error) {
  EXPECT_THAT(message_of<UsageError>([&] { inspect(); }), HasSubstr(folder_.path()));
  EXPECT_THROW(inspect_swap_path({folder_.path("none")}, {}, *engine_), UsageError);
  std::filesystem::create_directory(folder_.path("rank-none"));
  EXPECT_THROW(inspect(), UsageError);
}

TEST_F(InspectTest, a_layout_of_another_program_and_a_damaged_journal_are_problems_not_crashes) {
  make(2, 3, 200);
  flip_bit(rank_folder(1) + "/journal.bin", 1536 + 40);  // in the first record
  InspectReport report = inspect();
  EXPECT_THAT(report.problems, ::testing::Contains(HasSubstr("journal.bin")));
  EXPECT_EQ(report.ranks.size(), 1u);
  EXPECT_FALSE(report.state_hash.has_value());
  std::filesystem::remove_all(rank_folder(1));
  { SwapStore::create({{rank_folder(1)}, Durability::step, "plain text"}, blocks_of({12}), *engine_); }
  EXPECT_THAT(inspect().problems, ::testing::Contains(HasSubstr("layout")));
}

TEST_F(InspectTest, journal_is_listed_record_by_record) {
  make(1, 1, 200);
  const InspectReport report = inspect({});
  ASSERT_EQ(report.ranks[0].paths.size(), 1u);
  const InspectedPath& path = report.ranks[0].paths[0];
  EXPECT_EQ(path.facts.state, SwapPath::State::good);
  ASSERT_TRUE(path.journal.has_value());
  const SwapJournal& journal = *path.journal;
  // The release of step 3 has been written over by step 4.
  ASSERT_EQ(journal.records.size(), 2u);
  EXPECT_EQ(journal.records[0].step, 3u);
  EXPECT_EQ(journal.records[1].step, 4u);
  EXPECT_EQ(journal.records[1].sequence, journal.records[0].sequence + 1);
  EXPECT_EQ(journal.records[1].offset, journal.records[0].offset + journal.records[0].bytes);
  EXPECT_EQ(journal.records[1].entries, report.ranks[0].blocks);
  EXPECT_EQ(journal.file_bytes, journal.records[1].offset + journal.records[1].bytes);
  EXPECT_EQ(journal.torn_bytes, 0u);
  EXPECT_FALSE(journal.released());
}

TEST_F(InspectTest, release_ends_the_journal_and_leaves_one_step) {
  {
    EngineStore store(rank_folder(0), 0, 1, 1, 200, *engine_);
    store.commit(3);
    store.release();
    store.commit(4);
    store.release();
  }
  const InspectReport report = inspect({});
  const SwapJournal& journal = *report.ranks[0].paths[0].journal;
  EXPECT_EQ(journal.records.back().kind, SwapJournalRecord::Kind::release);
  EXPECT_TRUE(journal.released());
  EXPECT_EQ(report.ranks[0].steps, (std::vector<std::uint64_t>{4}));
  EXPECT_THAT(to_text(report, true), HasSubstr("release"));
  EXPECT_THAT(to_text(report), ::testing::Not(HasSubstr("release")));
}

TEST_F(InspectTest, torn_tail_is_measured_and_costs_only_what_was_never_acknowledged) {
  make(1, 1, 200);
  std::ofstream(rank_folder(0) + "/journal.bin", std::ios::app | std::ios::binary) << "the start of a record";
  const InspectReport report = inspect();
  EXPECT_TRUE(report.good());
  EXPECT_EQ(report.ranks[0].paths[0].journal->torn_bytes, 21u);
  EXPECT_TRUE(report.ranks[0].paths[0].journal->released());
  EXPECT_EQ(report.state_hash, expected_hash(4));
}

TEST_F(InspectTest, generations_count_how_many_blocks_have_which) {
  {
    EngineStore store(rank_folder(0), 0, 1, 1, 200, *engine_);
    store.commit(3);
    store.release();
    store.commit(4);
    store.release();
    // Step 5 writes nothing.
    (*store).commit({5, SwapStore::describe({rank_folder(0)}).commits.back().metadata});
  }
  const InspectReport report = inspect({});
  EXPECT_EQ(report.step, 5u);
  EXPECT_EQ(report.ranks[0].generations,
            (std::map<std::uint64_t, std::uint64_t>{{2, report.ranks[0].blocks}}));
}

TEST_F(InspectTest, blocks_are_listed_with_place_generation_checksum_and_state) {
  make(1, 1, 400);
  InspectReport report = inspect({.blocks = true});
  const InspectedRank& rank = report.ranks[0];
  ASSERT_EQ(rank.block_list.size(), rank.blocks);
  EXPECT_EQ(rank.block_list[0].name, "embedding[0]");
  EXPECT_EQ(rank.block_list[0].bytes, 400u * 12);
  EXPECT_EQ(rank.block_list[0].state, InspectedBlock::State::unchecked);
  ASSERT_EQ(rank.block_list[0].extents.size(), 1u);
  const SwapStore::Extent extent = rank.block_list[1].extents[0];
  flip_bit(extent.path, extent.offset + 1);
  report = inspect({.verify = true, .blocks = true});
  EXPECT_EQ(report.ranks[0].block_list[0].state, InspectedBlock::State::good);
  EXPECT_EQ(report.ranks[0].block_list[1].state, InspectedBlock::State::damaged);
  EXPECT_THAT(to_text(report), HasSubstr(fmt::format("{:08x}", extent.crc32c)));
  const auto object = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(object["ranks"][0]["block_list"][1]["state"], "damaged");
  EXPECT_EQ(object["ranks"][0]["block_list"][1]["extents"][0]["generation"], extent.generation);
  EXPECT_EQ(nlohmann::json::parse(to_json(inspect({})))["ranks"][0].count("block_list"), 0u);
}

TEST_F(InspectTest, hash_of_a_store_without_durability_is_refused_not_left_out) {
  EngineStore(rank_folder(0), 0, 1, 1, 200, *engine_, Durability::none).commit(4);
  EXPECT_TRUE(inspect({}).good());
  EXPECT_THAT(inspect({.hash = true}).problems, ::testing::Contains(HasSubstr("none to hash")));
}

TEST_F(InspectTest, pipe_in_the_place_of_any_file_is_a_problem_and_nobody_waits_for_it) {
  for (const std::string name : {"store.json", "journal.bin", "extents.bin", "lock"}) {
    make(1, 1, 200);
    const std::string path = rank_folder(0) + "/" + name;
    std::filesystem::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    const InspectReport report = inspect({});
    if (name == "lock")  // of a dead drive, for one: who owns the store is not known then
      EXPECT_EQ(report.ranks.at(0).owner.state, SwapOwner::State::unknown);
    else
      EXPECT_THAT(report.problems, ::testing::Contains(HasSubstr(path)));
    std::filesystem::remove_all(rank_folder(0));
  }
}

TEST_F(InspectTest, missing_and_short_extents_are_problems_without_reading_them) {
  make(1, 1, 200);
  const std::string extents = rank_folder(0) + "/extents.bin";
  std::filesystem::resize_file(extents, std::filesystem::file_size(extents) - 1);
  EXPECT_THAT(inspect({}).problems, ::testing::Contains(HasSubstr("cut short")));
  std::filesystem::remove(extents);
  EXPECT_THAT(inspect({}).problems,
              ::testing::Contains(AllOf(HasSubstr("extents.bin"), HasSubstr("restore the file"))));
}

TEST_F(InspectTest, folder_that_may_not_be_read_says_so_and_what_to_do) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  make(1, 1, 200);
  std::filesystem::permissions(rank_folder(0), std::filesystem::perms::none);
  EXPECT_THAT(inspect({}).problems, ::testing::Contains(AllOf(HasSubstr("Permission denied"),
                                                              HasSubstr("the user who runs the job"))));
  std::filesystem::permissions(rank_folder(0), std::filesystem::perms::owner_all);
}

TEST_F(InspectTest, store_on_three_paths_shows_each_of_them_and_one_finds_the_others) {
  make_on_paths(3, 1);
  const std::vector<std::vector<std::string>> ways = {
      {folder_.path("b")}, {folder_.path("a"), folder_.path("b"), folder_.path("c")}};
  for (const std::vector<std::string>& given : ways) {
    const InspectReport report =
        inspect_swap_path(given, {.verify = true, .hash = true, .blocks = true}, *engine_);
    EXPECT_THAT(report.problems, ::testing::IsEmpty());
    EXPECT_EQ(report.state_hash, expected_hash(4));
    const InspectedRank& rank = report.ranks[0];
    EXPECT_EQ(rank.parity, 1u);
    ASSERT_EQ(rank.paths.size(), 3u);
    for (const InspectedPath& path : rank.paths) {
      EXPECT_EQ(path.facts.state, SwapPath::State::good);
      ASSERT_TRUE(path.journal.has_value());
      EXPECT_EQ(path.journal->records.back().step, 4u);
    }
    EXPECT_EQ(rank.block_list[0].extents.size(), 3u);  // two pieces of data, one of parity
    EXPECT_THAT(to_text(report), HasSubstr("3, of which 1 may be lost"));
  }
}

TEST_F(InspectTest, lost_path_is_a_problem_that_names_the_repair_and_shows_as_missing) {
  make_on_paths(3, 1);
  std::filesystem::remove_all(folder_.path("c"));
  const InspectReport report = inspect_swap_path({folder_.path("a")}, {}, *engine_);
  EXPECT_THAT(report.problems, ::testing::Contains(HasSubstr("--repair")));
  ASSERT_EQ(report.ranks.size(), 1u);
  const auto& paths = report.ranks[0].paths;
  EXPECT_EQ(std::count_if(paths.begin(), paths.end(),
                          [](const InspectedPath& path) {
                            return path.facts.state == SwapPath::State::missing && !path.journal;
                          }),
            1);
  EXPECT_THAT(to_text(report), HasSubstr("missing"));
}

TEST_F(InspectTest, damaged_piece_marks_its_block_though_parity_makes_up_for_it) {
  make_on_paths(3, 1);
  InspectReport report = inspect_swap_path({folder_.path("a")}, {.blocks = true}, *engine_);
  const SwapStore::Extent parity = report.ranks[0].block_list[1].extents.back();
  flip_bit(parity.path, parity.offset);
  report = inspect_swap_path({folder_.path("a")}, {.verify = true, .blocks = true}, *engine_);
  EXPECT_FALSE(report.good());
  EXPECT_EQ(report.ranks[0].block_list[0].state, InspectedBlock::State::good);
  EXPECT_EQ(report.ranks[0].block_list[1].state, InspectedBlock::State::damaged);
}

TEST_F(InspectTest, damage_is_one_line_a_path_that_says_parity_covers_it_and_the_details_are_for_blocks) {
  make_on_paths(3, 1);
  InspectReport report = inspect_swap_path({folder_.path("a")}, {.blocks = true}, *engine_);
  const auto blocks = report.ranks[0].block_list;
  std::size_t flipped = 0;
  for (const InspectedBlock& block : blocks)
    for (const SwapStore::Extent& piece : block.extents)
      if (piece.path.starts_with(folder_.path("b") + "/") && ++flipped <= 2)
        flip_bit(piece.path, piece.offset);
  ASSERT_GT(flipped, 2u);
  report = inspect_swap_path({folder_.path("a")}, {.verify = true, .hash = true}, *engine_);
  const std::string line = fmt::format(
      "{0}/b: 2 of {1} pieces damaged; whole by parity: headrace inspect --repair "
      "{0}/a {0}/b {0}/c",
      folder_.path(), blocks.size());
  EXPECT_THAT(report.problems, ::testing::ElementsAre(line));
  report = inspect_swap_path({folder_.path("a")}, {.verify = true, .blocks = true}, *engine_);
  EXPECT_THAT(report.problems, ::testing::ElementsAre(line, HasSubstr("CRC32C"), HasSubstr("CRC32C")));
}

TEST_F(InspectTest, what_reading_finds_damaged_shows_in_the_state_of_its_path_and_is_all_in_the_json) {
  for (const std::uint32_t parity : {0u, 1u}) {
    make_on_paths(parity == 0 ? 1 : 3, parity);
    const std::vector<std::string> given = {folder_.path("a")};
    const InspectReport before = inspect_swap_path(given, {.blocks = true}, *engine_);
    const std::size_t blocks = before.ranks[0].block_list.size();
    for (const InspectedBlock& block : before.ranks[0].block_list)
      for (const SwapStore::Extent& piece : block.extents)
        if (piece.path.starts_with(folder_.path("a") + "/")) flip_bit(piece.path, piece.offset);
    const InspectReport report = inspect_swap_path(given, {.verify = true}, *engine_);
    const std::string count = fmt::format("{0} of {0}", blocks);
    EXPECT_THAT(to_text(report), AllOf(HasSubstr("damaged (" + count + ")"), HasSubstr("  checked  ")));
    const auto rank = nlohmann::json::parse(to_json(report)).at("ranks").at(0);
    EXPECT_EQ(rank.at("checked_bytes"), 0u);
    EXPECT_EQ(rank.at("read_bytes"), report.ranks[0].blocks_bytes);
    EXPECT_EQ(rank.at("damage").size(), blocks);
    EXPECT_EQ(rank.at("damage").at(1).at("block"), before.ranks[0].block_list[1].name);
    for (const auto& path : rank.at("paths")) {
      const bool is_damaged = path.at("directory") == folder_.path("a/rank-00000");
      EXPECT_EQ(path.at("state"), is_damaged ? "damaged" : "good");
      EXPECT_EQ(path.at("problem"),
                !is_damaged ? "" : count + (parity == 0 ? " blocks damaged" : " pieces damaged"));
      EXPECT_EQ(path.at("pieces_damaged"), is_damaged ? blocks : 0);
    }
    for (const char* name : {"a", "b", "c"}) std::filesystem::remove_all(folder_.path(name));
  }
}

TEST_F(InspectTest, a_damaged_piece_beside_a_lost_path_is_more_than_one_parity_makes_up_for) {
  make_on_paths(3, 1);
  const InspectReport before = inspect_swap_path({folder_.path("a")}, {.blocks = true}, *engine_);
  const auto& pieces = before.ranks[0].block_list[0].extents;
  const auto on_b = std::find_if(pieces.begin(), pieces.end(), [&](const SwapStore::Extent& piece) {
    return piece.path.starts_with(folder_.path("b") + "/");
  });
  ASSERT_NE(on_b, pieces.end());
  flip_bit(on_b->path, on_b->offset);
  std::filesystem::remove_all(folder_.path("c"));
  const InspectReport report = inspect_swap_path({folder_.path("a")}, {.verify = true}, *engine_);
  EXPECT_THAT(report.problems, ::testing::Contains(HasSubstr("1 block cannot be rebuilt by parity")));
  EXPECT_THAT(report.problems, ::testing::Each(::testing::Not(HasSubstr("whole by parity"))));
}

TEST_F(InspectTest, what_can_be_repaired_is_told_beside_what_cannot) {
  make_on_paths(3, 1);
  const InspectReport before = inspect_swap_path({folder_.path("a")}, {.blocks = true}, *engine_);
  const auto& blocks = before.ranks[0].block_list;
  ASSERT_GT(blocks.size(), 2u);
  for (const auto& [block, piece] : {std::pair(0, 0), {0, 1}, {1, 0}, {2, 2}})
    flip_bit(blocks[block].extents[piece].path, blocks[block].extents[piece].offset);
  const InspectReport report = inspect_swap_path({folder_.path("a")}, {.verify = true}, *engine_);
  EXPECT_THAT(report.problems, ::testing::Contains(AllOf(HasSubstr("1 block cannot be rebuilt"),
                                                         HasSubstr("--overwrite-swap"))));
  EXPECT_THAT(report.problems, ::testing::Contains(fmt::format(
                                   "2 blocks more are damaged and can be rebuilt: headrace inspect "
                                   "--repair {0}/a {0}/b {0}/c",
                                   folder_.path())));
}

TEST_F(InspectTest, some_paths_of_a_store_find_the_others_and_strangers_among_them_are_wrong_usage) {
  make_on_paths(3, 1);
  const auto inspect_in = [&](std::vector<std::string> names) {
    for (std::string& name : names) name = folder_.path(name);
    return inspect_swap_path(names, {.hash = true}, *engine_);
  };
  for (const std::vector<std::string>& given :
       {std::vector<std::string>{"a", "c"}, {"b", "a"}, {"a/rank-00000", "b/rank-00000"}}) {
    const InspectReport report = inspect_in(given);
    EXPECT_THAT(report.problems, ::testing::IsEmpty());
    EXPECT_EQ(report.ranks.at(0).paths.size(), 3u);
    EXPECT_EQ(report.state_hash, expected_hash(4));
  }
  std::filesystem::create_directory(folder_.path("x"));
  EXPECT_THROW(inspect_in({"a", "x"}), WrongSwapPaths);
  EXPECT_THROW(inspect_in({"a", "b", "c", "x"}), WrongSwapPaths);
  std::filesystem::remove_all(folder_.path("b"));  // damage, of which the others are to tell
  EXPECT_THAT(inspect_in({"a", "c"}).problems, ::testing::Contains(HasSubstr("mount its drive")));
}

TEST_F(InspectTest, a_run_that_has_committed_nothing_yet_is_well_as_long_as_it_lives) {
  {
    const EngineStore store(rank_folder(0), 0, 1, 1, 200, *engine_);
    const InspectReport report = inspect({.verify = true});
    EXPECT_THAT(report.problems, ::testing::IsEmpty());
    EXPECT_THAT(report.notes, ::testing::Contains(HasSubstr("has just started")));
    EXPECT_THAT(inspect({.hash = true}).problems, ::testing::Contains(HasSubstr("no state to hash")));
  }
  EXPECT_THAT(inspect({}).problems, ::testing::Contains(HasSubstr("no step was committed")));
}

TEST_F(InspectTest, bytes_on_the_disk_are_those_of_all_files_and_extents_are_told_apart) {
  make(1, 1, 200);
  Bytes bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(rank_folder(0))) {
    struct stat status {};
    ASSERT_EQ(::stat(entry.path().c_str(), &status), 0);
    if (entry.path().filename() != "lock") bytes += static_cast<Bytes>(status.st_blocks) * 512;
  }
  const InspectedRank rank = inspect({}).ranks.at(0);
  EXPECT_EQ(rank.disk_bytes, bytes);
  EXPECT_GT(rank.disk_bytes, rank.extents_bytes);
}

TEST_F(InspectTest, more_damage_than_parity_makes_up_for_is_not_called_whole) {
  make_on_paths(3, 1);
  const InspectReport before = inspect_swap_path({folder_.path("a")}, {.blocks = true}, *engine_);
  for (std::size_t piece = 0; piece < 2; ++piece) {
    const SwapStore::Extent& extent = before.ranks[0].block_list[0].extents[piece];
    flip_bit(extent.path, extent.offset);
  }
  const InspectReport report = inspect_swap_path({folder_.path("a")}, {.verify = true}, *engine_);
  EXPECT_THAT(report.problems, ::testing::Contains(HasSubstr("1 block cannot be rebuilt by parity")));
  EXPECT_THAT(report.problems, ::testing::Each(::testing::Not(HasSubstr("--repair"))));
}

TEST_F(InspectTest, damage_without_parity_is_one_line_that_recommends_no_inspection) {
  make(1, 1, 100);
  const InspectReport before = inspect({.blocks = true});
  for (std::size_t block = 0; block < 3; ++block) {
    const SwapStore::Extent& extent = before.ranks[0].block_list[block].extents[0];
    flip_bit(extent.path, extent.offset);
  }
  const InspectReport report = inspect({.verify = true});
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_THAT(report.problems[0], HasSubstr(fmt::format("3 of {} blocks damaged", before.ranks[0].blocks)));
  EXPECT_THAT(report.problems[0], ::testing::Not(HasSubstr("headrace inspect")));
}

TEST_F(InspectTest, lost_path_is_told_in_whole_sentences) {
  make_on_paths(3, 1);
  std::filesystem::remove_all(folder_.path("c"));
  const InspectReport report = inspect_swap_path({folder_.path("a")}, {}, *engine_);
  EXPECT_THAT(report.problems,
              ::testing::Contains(HasSubstr("does not exist. The state is whole by parity: ")));
}

TEST_F(InspectTest, a_stop_ends_the_reading_and_gives_no_hash) {
  for (const bool parity : {false, true}) {
    if (parity)
      make_on_paths(3, 1);
    else
      make(1, 1, 100);
    Bytes checked = 0, total = 0;
    const InspectControl control{.stop_requested = [&] { return checked > 0; },
                                 .progress = [&](Bytes done, Bytes all) { checked = done, total = all; }};
    const InspectReport report = inspect_swap_path({parity ? folder_.path("a") : folder_.path()},
                                                   {.verify = true, .hash = true}, *engine_, control);
    EXPECT_TRUE(report.stopped);
    EXPECT_FALSE(report.state_hash.has_value());
    EXPECT_GT(checked, 0u);
    EXPECT_LT(checked, total);
    EXPECT_THAT(to_text(report), HasSubstr("stopped"));
    std::filesystem::remove_all(rank_folder(0));
  }
}

}  // namespace
}  // namespace headrace::testing
