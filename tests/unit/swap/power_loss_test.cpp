// Runs of a store are recorded call by call. For every moment of a run, disks are made as the loss of power
// may leave them there (LossyDisk): everything unflushed lost, kept, each change alone, and random mixtures
// with writes torn at 512 bytes. On each, open() must find the last step whose commit() returned, or the one
// being committed, with every byte of every block; and each flush of the store is taken out of the recording
// once, which must show.
#include <gmock/gmock.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <set>
#include <unordered_set>

#include "tests/unit/swap/lossy_disk.h"
#include "tests/unit/swap/store_fixture.h"

namespace headrace::testing {
namespace {

const std::vector<Bytes> block_sizes = {4097, 0, 512};
constexpr Bytes large_metadata_bytes = 5000;  // the journal is compacted at the 17th such record

// One attempt to commit a step: its number is in the metadata, so that two attempts at one step differ.
struct Attempt {
  std::uint64_t step = 0;
  std::vector<std::uint64_t> seeds;  // contents of each block; 0: never written
};

// How many paths a store has, and how many of them may be lost.
struct Shape {
  std::size_t paths = 1;
  std::uint32_t parity = 0;
};
std::string name_of(const Shape& shape) {
  if (shape.parity > 0) return fmt::format("{}_paths_parity_{}", shape.paths, shape.parity);
  return shape.paths == 1 ? "1_path" : fmt::format("{}_paths", shape.paths);
}

// What open() may find at one moment.
struct Allowed {
  std::set<std::size_t> attempts;
  bool no_store = true;          // or one without a commit
  std::uint32_t lost_paths = 0;  // that parity has already made up for
};

struct Moment {
  FileEvent event;
  bool failed = false;
  std::string operation;  // of the store, in which the call was made
  Allowed before;
};

// A recorded run of a store.
class RecordedRun {
 public:
  RecordedRun(IoEngine& engine, const Shape& shape) : engine_(engine), shape_(shape) {
    options_.durability = Durability::step;
    options_.layout = "{}";
    options_.parity = shape.parity;
    for (std::size_t path = 0; path < shape.paths; ++path) {
      const std::string above = folder_.path("path-" + std::to_string(path));
      std::filesystem::create_directory(above);
      options_.directories.push_back(above + "/rank-00000");
    }
    record_from_here();
  }

  void create(const std::string& operation = "create") {
    in(operation, [&] { store_ = SwapStore::create(options_, blocks_of(block_sizes), engine_); });
    current_.seeds.assign(block_sizes.size(), 0);
    allowed_ = {};
  }
  void open(const std::string& operation = "open") {
    in(operation, [&] { store_ = SwapStore::open(options_, engine_); });
  }
  void close() {
    in("close", [&] { store_.reset(); });
  }
  void write(std::vector<std::uint32_t> blocks = {0, 1, 2}) {
    in("write", [&] {
      for (const std::uint32_t block : blocks) write_block(*store_, block, current_.seeds[block] = ++seed_);
    });
  }
  // A step whose commit() throws when `fails`.
  void commit(std::uint64_t step, Bytes metadata_bytes = 0, bool fails = false,
              const std::string& operation = "commit") {
    current_.step = step;
    const std::size_t number = attempts_.size();
    attempts_.push_back(current_);
    const Allowed before = allowed_;
    allowed_.attempts.insert(number);
    in(operation, [&] {
      const SwapCommit commit{step, std::to_string(number) + std::string(metadata_bytes, ' ')};
      if (fails)
        EXPECT_THROW(store_->commit(commit), IoError);
      else
        store_->commit(commit);
    });
    if (fails)
      allowed_ = before;
    else
      allowed_ = {.attempts = {number}, .no_store = false, .lost_paths = allowed_.lost_paths};
  }
  // A step whose process is killed between writing its record and flushing it, and the next process.
  void kill_in_commit_and_open(std::uint64_t step) {
    const Allowed before = allowed_;
    commit(step);
    allowed_.attempts.insert(before.attempts.begin(), before.attempts.end());
    HEADRACE_CHECK(recording_.back().event.call == FileCall::sync, "a commit does not end with a flush");
    recording_.pop_back();
    close();
    open();
    allowed_.attempts = {attempts_.size() - 1};
  }
  void step(std::uint64_t step, Bytes metadata_bytes = 0) {
    write();
    commit(step, metadata_bytes);
    release();
  }
  void release() {
    in("release", [&] { store_->release_superseded(); });
  }
  void rollback() {
    in("rollback", [&] { store_->rollback(); });
    current_ = attempts_[*allowed_.attempts.begin()];
  }
  // From the newest commit to the one before it.
  void go_back() {
    const std::size_t older = *allowed_.attempts.begin() - 1;
    allowed_.attempts.insert(older);
    in("position_at", [&] { store_->position_at(attempts_[older].step); });
    allowed_.attempts = {older};
    current_ = attempts_[older];
  }
  void remove_and_close() {
    give_up();
    store_->remove_on_close();
    in("remove", [&] { store_.reset(); });
  }
  // The store may be replaced by another one from now on.
  void give_up() { allowed_.no_store = true; }

  // Calls before this are durable: the recording starts here.
  void record_from_here() {
    recording_.clear();
    start_.emplace(folder_.path());
  }
  // The next call of this kind on such a path fails with EIO.
  void fail(FileCall call, std::string suffix) { fault_ = {call, std::move(suffix)}; }
  // From now on a path has failed, and no further one may.
  void lose_a_path() { ++allowed_.lost_paths; }

  void end() {
    recording_.push_back({{}, false, "end", allowed_});
    store_.reset();
  }
  const std::vector<Moment>& recording() const { return recording_; }
  const LossyDisk& start() const { return *start_; }
  const std::vector<Attempt>& attempts() const { return attempts_; }
  std::string folder() const { return folder_.path(); }
  const SwapStoreOptions& options() const { return options_; }
  const Shape& shape() const { return shape_; }

 private:
  void in(const std::string& operation, const std::function<void()>& action) {
    const SyscallHook hook(folder_.path(), [&](const FileEvent& event) {
      const bool hit = fault_ && event.call == fault_->first && event.path.ends_with(fault_->second);
      if (hit) fault_.reset();
      recording_.push_back({event, hit, operation, allowed_});
      return hit ? EIO : 0;
    });
    action();
  }

  IoEngine& engine_;
  const Shape shape_;
  TemporaryFolder folder_{memory_folder()};
  SwapStoreOptions options_;
  std::optional<LossyDisk> start_;
  std::vector<Moment> recording_;
  std::vector<Attempt> attempts_;
  Attempt current_;
  Allowed allowed_;
  std::uint64_t seed_ = 0;
  std::optional<std::pair<FileCall, std::string>> fault_;
  std::unique_ptr<SwapStore> store_;
};

struct Scenario {
  const char* name;
  void (*run)(RecordedRun&);
  std::size_t disks;  // different ones to try at least
  Shape shape{};
};

void first_steps(RecordedRun& run) {
  run.create();
  run.commit(1);  // nothing is written: blocks stay without a version
  run.write({0});
  run.rollback();
  run.step(2);
  run.write();
  run.rollback();
  run.step(3);
  run.write({2});
  run.commit(4);
  run.release();
  run.step(5);
}

void compaction(RecordedRun& run) {
  run.create();
  for (std::uint64_t step = 1; step <= 15; ++step) run.step(step, large_metadata_bytes);
  run.record_from_here();
  run.step(16, large_metadata_bytes);
  run.write();
  run.commit(17, large_metadata_bytes, false, "commit that compacts");
  run.release();
  run.step(18, large_metadata_bytes);
}

void compaction_of_two_steps(RecordedRun& run) {
  run.create();
  for (std::uint64_t step = 1; step <= 15; ++step) run.step(step, large_metadata_bytes);
  run.write();
  run.record_from_here();
  run.commit(16, large_metadata_bytes);
  run.commit(17, large_metadata_bytes, false, "commit that compacts");
  run.go_back();
  run.step(17, large_metadata_bytes);
}

void going_back(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.write();
  run.commit(2);
  run.go_back();
  run.write();
  run.commit(2);
  run.release();
  run.write();
  run.commit(3);
  run.close();
  run.open();
  run.go_back();
  run.step(3);
}

// The journal ends in bytes of a record that never became whole.
void torn_tail(RecordedRun& run) {
  run.create();
  run.step(1);
  run.write();
  run.commit(2);
  run.close();
  for (const std::string& directory : run.options().directories)
    std::ofstream(directory + "/journal.bin", std::ios::app | std::ios::binary) << std::string(700, 'x');
  run.record_from_here();
  run.open("open with a torn tail");
  run.step(3);
  run.close();
  run.open();
  run.step(4);
}

void failed_flushes(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.write();
  run.fail(FileCall::sync, "journal.bin");
  run.commit(2, 0, true, "commit that fails");
  run.rollback();
  run.step(2);
  run.write();
  run.fail(FileCall::sync, "extents.bin");
  run.commit(3, 0, true, "commit that fails");
  run.rollback();
  run.step(3, 600);
}

// With parity the failing path is given up, and the run goes on.
void a_path_fails(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.write();
  run.lose_a_path();
  run.fail(FileCall::sync, "journal.bin");
  run.commit(2);
  run.release();
  run.step(3);
  run.write();
  run.commit(4);
  run.go_back();
  run.step(4);
}

void another_store_in_its_place(RecordedRun& run) {
  run.create();
  run.step(1);
  run.step(2);
  run.close();
  run.record_from_here();
  run.give_up();
  run.create("create in the place of another");
  run.step(7);
}

void removed(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.remove_and_close();
}

void killed_before_the_last_flush(RecordedRun& run) {
  run.create();
  run.step(1);
  run.record_from_here();
  run.write();
  run.kill_in_commit_and_open(2);
  run.release();
  run.step(3);
}

constexpr Shape two_paths{.paths = 2}, with_parity{.paths = 3, .parity = 1};
const std::vector<Scenario> scenarios = {
    {"first_steps", first_steps, 2500},
    {"compaction", compaction, 2000},
    {"compaction_of_two_steps", compaction_of_two_steps, 1200},
    {"going_back", going_back, 1800},
    {"torn_tail", torn_tail, 1000},
    {"failed_flushes", failed_flushes, 2000},
    {"another_store_in_its_place", another_store_in_its_place, 500},
    {"removed", removed, 10},
    {"killed_before_the_last_flush", killed_before_the_last_flush, 300},
    {"first_steps", first_steps, 300, two_paths},
    {"compaction", compaction, 300, two_paths},
    {"compaction_of_two_steps", compaction_of_two_steps, 300, two_paths},
    {"going_back", going_back, 300, two_paths},
    {"torn_tail", torn_tail, 300, two_paths},
    {"failed_flushes", failed_flushes, 300, two_paths},
    {"another_store_in_its_place", another_store_in_its_place, 300, two_paths},
    {"removed", removed, 10, two_paths},
    {"first_steps", first_steps, 300, with_parity},
    {"compaction", compaction, 300, with_parity},
    {"compaction_of_two_steps", compaction_of_two_steps, 300, with_parity},
    {"going_back", going_back, 300, with_parity},
    {"torn_tail", torn_tail, 300, with_parity},
    {"a_path_fails", a_path_fails, 300, with_parity},
    {"another_store_in_its_place", another_store_in_its_place, 300, with_parity},
    {"removed", removed, 10, with_parity},
};

// Opens disks and says what is wrong with them.
class Check {
 public:
  Check(const RecordedRun& run, IoEngine& engine) : run_(run), engine_(engine) {
    for (const Attempt& attempt : run.attempts())
      for (std::size_t block = 0; block < block_sizes.size(); ++block) {
        std::vector<std::byte> contents(block_sizes[block]);
        fill(contents, attempt.seeds[block]);
        contents_[attempt.seeds[block]] = std::move(contents);
      }
  }

  // Empty when the disks are as they may be, also without one of the paths that parity stands for.
  std::string operator()(const LossyDisk::Image& image, const Allowed& allowed, std::mt19937& random) {
    std::optional<std::size_t> missing;
    if (run_.shape().parity > allowed.lost_paths && random() % 4 != 0)
      missing = random() % run_.shape().paths;
    if (!seen_.insert(key_of(image, allowed, missing)).second) return "";
    write_image(image, folder_.path("disk"));
    SwapStoreOptions options = run_.options();
    for (std::string& directory : options.directories)
      directory = folder_.path("disk") + directory.substr(run_.folder().size());
    if (missing) std::filesystem::remove_all(options.directories[*missing]);
    const std::string wrong = found_in(options, allowed);
    return wrong.empty() || !missing ? wrong : fmt::format("without path {}: {}", *missing, wrong);
  }
  std::size_t disks() const { return seen_.size(); }

 private:
  std::string found_in(const SwapStoreOptions& options, const Allowed& allowed) {
    try {
      return state_of(options, allowed);
    } catch (const UsageError& error) {
      return allowed.no_store ? another_run_begins(options) : error.what();
    } catch (const Error& error) {
      return error.what();
    }
  }

  static std::size_t key_of(const LossyDisk::Image& image, const Allowed& allowed,
                            std::optional<std::size_t> missing) {
    std::string text = allowed.no_store ? "-" : "+";
    if (missing) text += std::to_string(*missing) + "!";
    for (const std::size_t attempt : allowed.attempts) text += std::to_string(attempt) + ",";
    std::size_t key = std::hash<std::string>{}(text);
    for (const auto& [path, contents] : image) {
      key = key * 0x9E3779B97F4A7C15 + std::hash<std::string>{}(path);
      key = key * 0x9E3779B97F4A7C15 + std::hash<std::string>{}(contents);
    }
    return key;
  }

  std::string state_of(const SwapStoreOptions& options, const Allowed& allowed) {
    const auto store = SwapStore::open(options, engine_);
    const std::vector<SwapCommit> commits = store->commits();
    const std::size_t found = number_of(commits.back());
    if (!allowed.attempts.contains(found))
      return fmt::format("step {} (attempt {}) is found", commits.back().step, found);
    if (std::string text = wrong_blocks(*store, commits.back()); !text.empty()) return text;
    if (commits.size() < 2) return "";
    try {
      store->position_at(commits.front().step);
    } catch (const CorruptData&) {
      return "";  // its extents were used again; it says so
    }
    return wrong_blocks(*store, commits.front());
  }

  std::string wrong_blocks(SwapStore& store, const SwapCommit& commit) {
    const Attempt& attempt = run_.attempts()[number_of(commit)];
    if (attempt.step != commit.step)
      return fmt::format("attempt at step {} has {}", attempt.step, commit.step);
    for (std::uint32_t block = 0; block < block_sizes.size(); ++block) {
      const std::uint64_t seed = attempt.seeds[block];
      if (store.extents(block).empty() != (seed == 0))
        return fmt::format("block {} of step {}: written is not written", block, commit.step);
      if (seed == 0) continue;
      store.read(block, buffer_.lease()).wait();
      const auto bytes = buffer_.memory().first(block_sizes[block]);
      if (!std::equal(bytes.begin(), bytes.end(), contents_.at(seed).begin()))
        return fmt::format("block {} of step {} has other bytes", block, commit.step);
    }
    return "";
  }

  // What is left stands in nobody's way.
  std::string another_run_begins(const SwapStoreOptions& options) {
    try {
      const auto store = SwapStore::create(options, blocks_of({4096}), engine_);
      commit_step(*store, 1);
      return holds_step(*store, 1) ? "" : "a new store there holds other bytes";
    } catch (const Error& error) {
      return fmt::format("no new store can be made there: {}", error.what());
    }
  }

  static std::size_t number_of(const SwapCommit& commit) {
    std::size_t number = 0;
    std::from_chars(commit.metadata.data(), commit.metadata.data() + commit.metadata.size(), number);
    return number;
  }

  const RecordedRun& run_;
  IoEngine& engine_;
  TemporaryFolder folder_{memory_folder()};
  Buffer buffer_{16384};
  std::map<std::uint64_t, std::vector<std::byte>> contents_;
  std::unordered_set<std::size_t> seen_;
};

// The mixtures tried of `changes` unflushed changes: all lost, all kept, each one alone lost, kept or torn,
// and random ones.
std::vector<std::vector<Fate>> mixtures(std::size_t changes, std::size_t random_ones, std::mt19937& random) {
  std::vector<std::vector<Fate>> all;
  for (const Fate others : {Fate::lose, Fate::keep}) {
    all.emplace_back(changes, others);
    for (std::size_t one = 0; one < changes; ++one)
      for (const Fate fate : {Fate::lose, Fate::keep, Fate::tear})
        if (fate != others) {
          all.emplace_back(changes, others);
          all.back()[one] = fate;
        }
  }
  for (std::size_t i = 0; changes > 0 && i < random_ones; ++i) {
    const unsigned keep_percent = std::array{10u, 50u, 90u}[i % 3];
    all.emplace_back();
    for (std::size_t one = 0; one < changes; ++one)
      all.back().push_back(random() % 3 == 0               ? Fate::tear
                           : random() % 100 < keep_percent ? Fate::keep
                                                           : Fate::lose);
  }
  return all;
}

using FlushSite = std::string;
// The operation in which a file is flushed, and which of its flushes there it is. Two places in the store are
// reached from several operations: cutting the end of the journal, and making a new folder durable.
std::optional<FlushSite> flush_site(const RecordedRun& run, std::size_t number) {
  const Moment& moment = run.recording()[number];
  if (moment.event.call != FileCall::sync || moment.failed) return std::nullopt;
  int times = 1;
  for (std::size_t i = number; i-- > 0 && run.recording()[i].operation == moment.operation;)
    times +=
        run.recording()[i].event.call == FileCall::sync && run.recording()[i].event.path == moment.event.path;
  const std::string& path = moment.event.path;
  std::string file = path.substr(path.rfind('/') + 1);
  for (const std::string& directory : run.options().directories) {
    if (path == directory) file = "the folder";
    if (path == directory.substr(0, directory.rfind('/'))) file = "the folder above";
  }
  const bool cuts = file == "journal.bin" &&
                    (moment.operation == "position_at" || moment.operation == "open with a torn tail" ||
                     moment.operation == "commit that fails");
  const std::string operation = cuts                         ? "cutting the journal's end"
                                : file == "the folder above" ? "create"
                                                             : moment.operation;
  return fmt::format("{}: {} ({})", operation, file, cuts ? 1 : times);
}

// How many of them a replay tries at each moment; those that lose all and keep all are always among them.
struct Effort {
  std::size_t random_ones = 0, at_most = 0;
};

std::vector<std::vector<Fate>> some_mixtures(std::size_t changes, Effort effort, std::mt19937& random) {
  std::vector<std::vector<Fate>> all = mixtures(changes, effort.random_ones, random);
  if (all.size() <= effort.at_most) return all;
  std::shuffle(all.begin(), all.end(), random);
  all.resize(effort.at_most);
  all.emplace_back(changes, Fate::lose);
  all.emplace_back(changes, Fate::keep);
  return all;
}

// Replays a recording, without the flushes of one site. Returns the first disk that is not as it may be.
std::string replay(const RecordedRun& run, Check& check, Effort effort, unsigned seed,
                   const std::optional<FlushSite>& without = std::nullopt) {
  LossyDisk disk = run.start();
  std::mt19937 random(seed);
  std::size_t moment_number = 0;
  for (const Moment& moment : run.recording()) {
    for (const auto names : {LossyDisk::Names::independent, LossyDisk::Names::in_order})
      for (const std::vector<Fate>& fates : some_mixtures(disk.unflushed(), effort, random))
        if (std::string wrong = check(disk.image(fates, random, names), moment.before, random);
            !wrong.empty())
          return fmt::format("seed {}, before call {} ({}): {}", seed, moment_number, moment.operation,
                             wrong);
    ++moment_number;
    if (moment.operation == "end" || (without && flush_site(run, moment_number - 1) == without)) continue;
    moment.failed ? disk.apply_failed(moment.event) : disk.apply(moment.event);
  }
  return "";
}

class PowerLossTest : public ::testing::TestWithParam<Scenario> {
 protected:
  std::unique_ptr<IoEngine> engine_ = make_thread_engine({});
};

TEST_P(PowerLossTest, at_any_moment_leaves_the_last_committed_step) {
  RecordedRun run(*engine_, GetParam().shape);
  GetParam().run(run);
  run.end();
  Check check(run, *engine_);
  const bool one_path = GetParam().shape.paths == 1;
  const Effort effort{.random_ones = one_path ? 100u : 10u, .at_most = one_path ? 1000u : 8u};
  for (unsigned seed = 1; check.disks() < GetParam().disks; ++seed)
    ASSERT_EQ(replay(run, check, effort, seed), "") << "after " << check.disks() << " disks";
  std::cout << check.disks() << " different disks\n";
}

TEST_P(PowerLossTest, is_tried_on_recordings_that_hold_every_change) {
  RecordedRun run(*engine_, GetParam().shape);
  GetParam().run(run);
  LossyDisk disk = run.start();
  for (const Moment& moment : run.recording())
    moment.failed ? disk.apply_failed(moment.event) : disk.apply(moment.event);
  EXPECT_EQ(disk.current(), LossyDisk(run.folder()).current());
}

INSTANTIATE_TEST_SUITE_P(Scenarios, PowerLossTest, ::testing::ValuesIn(scenarios),
                         [](const ::testing::TestParamInfo<Scenario>& scenario) {
                           return scenario.param.name + ("_on_" + name_of(scenario.param.shape));
                         });

TEST(PowerLoss, is_tried_on_ten_thousand_disks) {
  std::size_t disks = 0;
  for (const Scenario& scenario : scenarios) disks += scenario.disks;
  EXPECT_GE(disks, 10000u);
}

TEST(PowerLoss, shows_each_flush_of_the_store_that_is_left_out) {
  const auto engine = make_thread_engine({});
  std::map<FlushSite, std::string> found;
  for (const Scenario& scenario : scenarios) {
    RecordedRun run(*engine, scenario.shape);
    scenario.run(run);
    run.end();
    for (std::size_t number = 0; number < run.recording().size(); ++number)
      if (const auto site = flush_site(run, number); site && found[*site].empty()) {
        Check check(run, *engine);
        found[*site] = replay(run, check, {.random_ones = 6, .at_most = 40}, 1, site);
      }
  }
  for (const auto& [site, wrong] : found) {
    std::cout << site << "\n    " << (wrong.empty() ? "DOES NOT SHOW" : wrong) << "\n";
    EXPECT_NE(wrong, "") << site;
  }
}

}  // namespace
}  // namespace headrace::testing
