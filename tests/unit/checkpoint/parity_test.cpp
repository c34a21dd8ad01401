// Checkpoints with parity: what is lost or damaged of them is rebuilt when they are loaded, and by a repair.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "headrace/checkpoint_report.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "tests/support/engine_harness.h"

namespace headrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;

constexpr Combination on_device{0, Tier::device, Tier::device, Tier::device},
    sharded_host{1, Tier::host, Tier::device, Tier::device};

class CheckpointParity : public ::testing::Test {
 protected:
  // Files of several stripes.
  static EngineRun run_of(int world_size, const Combination& combination, int steps) {
    EngineRun run;
    run.options = with(run.options, combination);
    run.options.host_memory_bytes = 64 << 20;
    run.world_size = world_size;
    run.steps = steps;
    run.units.push_back({"wide",
                         {{.name = "wide.w",
                           .shape = {331, 1009},
                           .weight_decay = true,
                           .initial_std = 0.5f,
                           .initial_mean = 0.0f}}});
    return run;
  }

  EngineRunResult save(int ranks, std::uint32_t parity) {
    std::filesystem::remove_all(folder_.path("checkpoints"));
    EngineRun run = run_of(ranks, sharded_host, 1);
    run.finish = [&](const EngineRun::Rank& at, const TrainingState& state) {
      Checkpointer checkpointer(at.engine, at.io, at.communicator, at.device, at.options,
                                {.directory = folder_.path("checkpoints"),
                                 .parity = parity,
                                 .leads_host = at.rank == 0,
                                 .written_by = "test",
                                 .model = ""});
      const Checkpointer::Saved saved = checkpointer.save(state);
      if (at.rank == 0) path_ = saved.path;
    };
    const EngineRunResult result = run_engine(run);
    good_.clear();
    for (const std::string& name : names()) good_[name] = files::read_file(file(name));
    return result;
  }

  // On one rank, which notes what it was told of damage.
  std::uint64_t load() {
    told_.clear();
    EngineRun run = run_of(1, on_device, 0);
    run.begin = [&](const EngineRun::Rank& at, const TrainingState&) {
      return load_checkpoint(path_, at.engine, at.io,
                             {.on_damage = [&](const std::string& problem) { told_.push_back(problem); }});
    };
    return run_engine(run).hash;
  }
  std::string refusal() {
    try {
      load();
    } catch (const CorruptData& error) {
      return error.what();
    }
    return "loaded";
  }

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::vector<std::string> names() const {
    return folder_.names("checkpoints/" + std::filesystem::path(path_).filename().string());
  }
  void write(const std::string& name, std::span<const std::byte> bytes) const {
    std::ofstream(file(name), std::ios::binary | std::ios::trunc)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  void put_back() {
    for (const auto& [name, bytes] : good_) write(name, bytes);
  }

  enum class Harm {
    flipped_in_front,
    flipped_bit,
    flipped_at_the_end,
    one_byte_short,
    one_byte_more,
    empty,
    missing
  };
  static constexpr Harm harms[] = {Harm::flipped_in_front, Harm::flipped_bit,   Harm::flipped_at_the_end,
                                   Harm::one_byte_short,   Harm::one_byte_more, Harm::empty,
                                   Harm::missing};
  void harm(const std::string& name, Harm how) {
    std::vector<std::byte> bytes = good_.at(name);
    const std::size_t flipped = how == Harm::flipped_in_front ? 20
                                : how == Harm::flipped_bit    ? bytes.size() / 2
                                                              : bytes.size() - 2;
    if (how == Harm::missing) return std::filesystem::remove(file(name)), void();
    if (how == Harm::one_byte_short)
      bytes.pop_back();
    else if (how == Harm::one_byte_more)
      bytes.push_back({});
    else if (how == Harm::empty)
      bytes.clear();
    else
      bytes[flipped] ^= std::byte{0x10};
    write(name, bytes);
  }

  CheckpointReport inspect(bool verify, bool hash = false) const {
    return inspect_checkpoint(path_, {.verify = verify, .hash = hash}, *io_);
  }
  // Everything is as it was saved, and the files not named were not touched.
  void expect_repaired(const std::vector<std::string>& damaged) {
    std::map<std::string, ino_t> before;
    for (const std::string& name : names()) before[name] = inode(name);
    const CheckpointRepair repair = repair_checkpoint(path_, *io_);
    EXPECT_THAT(repair.problems, IsEmpty());
    std::vector<std::string> repaired;
    for (const CheckpointRepair::File& one : repair.files) repaired.push_back(one.name);
    EXPECT_THAT(repaired, UnorderedElementsAreArray(damaged));
    ASSERT_EQ(names().size(), good_.size());
    for (const auto& [name, bytes] : good_) {
      EXPECT_TRUE(files::read_file(file(name)) == bytes) << name;
      const bool was_good = std::ranges::find(damaged, name) == damaged.end();
      EXPECT_EQ(inode(name) == before[name], was_good) << name;
    }
    EXPECT_THAT(inspect(true).problems, IsEmpty());
  }
  ino_t inode(const std::string& name) const {
    struct stat facts {};
    return ::stat(file(name).c_str(), &facts) == 0 ? facts.st_ino : 0;
  }

  TemporaryFolder folder_;
  std::unique_ptr<IoEngine> io_ = make_thread_engine({});
  std::string path_;
  std::map<std::string, std::vector<std::byte>> good_;  // by name
  std::vector<std::string> told_;
};

// C20
TEST_F(CheckpointParity, damage_of_any_kind_to_any_file_is_made_good_by_a_load_and_by_a_repair) {
  for (const int ranks : {1, 2, 3, 4})
    for (const std::uint32_t parity : {1u, 2u}) {
      const std::uint64_t hash = save(ranks, parity).hash;
      EXPECT_EQ(load(), hash);
      EXPECT_THAT(told_, IsEmpty());
      std::size_t next = 0;
      for (const auto& [name, bytes] : good_)
        for (const Harm how : harms) {
          if ((ranks != 2 || parity != 1) && next++ % 5 != 0) continue;  // of the others a sample
          SCOPED_TRACE(
              fmt::format("{} ranks, parity {}, {} of {}", ranks, parity, static_cast<int>(how), name));
          harm(name, how);
          EXPECT_EQ(load(), hash);
          for (const std::string& problem : told_) EXPECT_THAT(problem, HasSubstr(name));
          EXPECT_THAT(inspect(true).problems, ElementsAre(HasSubstr(name)));
          expect_repaired({name});
        }
    }
}

TEST_F(CheckpointParity, as_many_files_as_parity_says_may_be_gone_at_once) {
  const std::uint64_t hash = save(3, 2).hash;
  const std::string shard = "rank-00001-of-00003.safetensors", other = "rank-00002-of-00003.safetensors",
                    row = "parity-00000-of-00002.bin";
  for (const auto& [first, second] : {std::pair(shard, other), std::pair(row, shard)}) {
    harm(first, Harm::missing);
    harm(second, Harm::empty);
    harm("manifest.json", Harm::flipped_bit);
    EXPECT_EQ(load(), hash);
    EXPECT_THAT(told_, UnorderedElementsAre(HasSubstr(first), HasSubstr(second),
                                            HasSubstr("manifest.json is damaged")));
    EXPECT_EQ(inspect(true, true).state_hash, hash);
    expect_repaired({first, second, "manifest.json"});
  }
}

TEST_F(CheckpointParity, damage_beyond_parity_names_every_file_and_nothing_is_replaced) {
  save(3, 1);
  const std::string first = "rank-00000-of-00003.safetensors", second = "rank-00002-of-00003.safetensors";
  for (const Harm how : {Harm::flipped_bit, Harm::missing, Harm::empty}) {
    harm(first, how);
    harm(second, how);
    EXPECT_THAT(refusal(), AllOf(HasSubstr(first), HasSubstr(second)));
    const CheckpointReport report = inspect(true);
    EXPECT_THAT(report.problems, Contains(HasSubstr(first)));
    EXPECT_THAT(report.problems.back(), AllOf(HasSubstr(second), HasSubstr("more than")));
    const ino_t before = inode(first);
    EXPECT_THAT(repair_checkpoint(path_, *io_).problems,
                ElementsAre(AllOf(HasSubstr(first), HasSubstr(second), HasSubstr("cannot be rebuilt"))));
    EXPECT_EQ(inode(first), before);
    put_back();
  }
}

TEST_F(CheckpointParity, files_that_are_damaged_in_different_stripes_are_all_rebuilt) {
  const std::uint64_t hash = save(2, 1).hash;
  const std::string first = "rank-00000-of-00002.safetensors", second = "rank-00001-of-00002.safetensors";
  ASSERT_GT(good_[first].size(), 2u << 20) << "files of one stripe";
  harm(first, Harm::flipped_in_front);
  harm(second, Harm::flipped_bit);
  harm("parity-00000-of-00001.bin", Harm::one_byte_short);
  EXPECT_EQ(load(), hash);
  EXPECT_EQ(inspect(true, true).state_hash, hash);
  expect_repaired({first, second, "parity-00000-of-00001.bin"});
}

TEST_F(CheckpointParity, both_manifests_damaged_are_an_error_and_the_copy_alone_makes_a_checkpoint) {
  const std::uint64_t hash = save(2, 1).hash;
  harm("manifest.json", Harm::missing);
  EXPECT_TRUE(is_checkpoint(path_));
  ASSERT_EQ(find_checkpoints(folder_.path("checkpoints")).size(), 1u);
  EXPECT_EQ(load(), hash);
  EXPECT_THAT(inspect(false).problems, ElementsAre(HasSubstr("manifest.json is missing")));
  harm("manifest-copy.json", Harm::flipped_bit);
  EXPECT_THAT(refusal(), HasSubstr("manifest-copy.json"));
  EXPECT_THROW(repair_checkpoint(path_, *io_), CorruptData);
  put_back();
  harm("manifest-copy.json", Harm::missing);
  EXPECT_THAT(inspect(false).problems, ElementsAre(HasSubstr("manifest-copy.json is missing")));
  EXPECT_EQ(load(), hash);
}

// Nothing is read but headers.
TEST_F(CheckpointParity, inspect_finds_missing_files_wrong_sizes_and_damaged_headers_without_verify) {
  for (const std::uint32_t parity : {0u, 1u}) {
    save(2, parity);
    const std::string name = "rank-00001-of-00002.safetensors";
    for (const Harm how : {Harm::flipped_in_front, Harm::one_byte_short, Harm::empty, Harm::missing}) {
      harm(name, how);
      EXPECT_THAT(inspect(false).problems, ElementsAre(HasSubstr(name))) << static_cast<int>(how);
      put_back();
    }
    harm(name, Harm::flipped_bit);
    EXPECT_THAT(inspect(false).problems, IsEmpty());
    EXPECT_THAT(inspect(true).problems, ElementsAre(HasSubstr(name)));
  }
}

TEST_F(CheckpointParity,
       a_repair_is_refused_without_parity_beside_a_job_that_saves_and_beside_another_repair) {
  save(2, 0);
  EXPECT_THROW(repair_checkpoint(path_, *io_), Error);
  save(2, 1);
  {
    const Fd job = files::open_file(folder_.path("checkpoints/lock"), O_RDWR | O_CREAT);
    ASSERT_EQ(::flock(job.get(), LOCK_EX | LOCK_NB), 0);
    EXPECT_THROW(repair_checkpoint(path_, *io_), UsageError);
  }
  {
    const Fd other = files::open_file(path_, O_RDONLY | O_DIRECTORY);
    ASSERT_EQ(::flock(other.get(), LOCK_EX | LOCK_NB), 0);
    EXPECT_THROW(repair_checkpoint(path_, *io_), UsageError);
  }
  write("rank-00000-of-00002.safetensors.partial", good_["manifest.json"]);  // of a repair that was killed
  expect_repaired({});
}

}  // namespace
}  // namespace headrace::testing
