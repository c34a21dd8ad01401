// Runs of a store that are recorded call by call, with what a later open() may find at each call.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/power_loss/lossy_disk.h"
#include "tests/unit/swap/store_fixture.h"

namespace headrace::testing {

// One attempt to commit a step: its number is in the metadata, so that two attempts at one step differ.
struct Attempt {
  std::uint64_t step = 0;
  std::vector<std::uint64_t> seeds;  // contents of each block; 0: never written
};

// How many paths a store has, how many of them may be lost, and how many versions may be pinned.
struct Shape {
  std::size_t paths = 1;
  std::uint32_t parity = 0, pins = 0;
};

// What open() may find at one moment.
struct Allowed {
  std::set<std::size_t> attempts;
  bool no_store = true;        // or one without a commit
  std::set<std::size_t> lost;  // paths that the store may call lost, and must not if their pieces are old
  bool damaged = false;        // pieces of paths that are not lost
  std::map<std::string, std::size_t> pins{};  // the attempt that each is of
  std::set<std::string> unsure_pins{};        // which of them may be missing
  std::size_t spent_parity() const { return lost.size() + (damaged ? 1 : 0); }
};

struct Moment {
  FileEvent event;
  bool failed = false;
  std::string operation;  // of the store, in which the call was made
  Allowed before;
};

// What is in the lock files is not recorded: it says nothing of a process before a boot.
class RecordedRun {
 public:
  static constexpr std::array<Bytes, 3> block_sizes = {4097, 0, 512};

  RecordedRun(IoEngine& engine, const Shape& shape) : engine_(engine), shape_(shape) {
    options_.durability = Durability::step;
    options_.layout = "{}";
    options_.parity = shape.parity;
    options_.pins = shape.pins;
    for (std::size_t path = 0; path < shape.paths; ++path) {
      const std::string above = folder_.path("path-" + std::to_string(path));
      std::filesystem::create_directory(above);
      options_.directories.push_back(above + "/rank-00000");
    }
    record_from_here();
  }

  void create(const std::string& operation = "create") {
    in(operation, [&] {
      store_ = SwapStore::create(options_, blocks_of({block_sizes.begin(), block_sizes.end()}), engine_);
    });
    current_.seeds.assign(block_sizes.size(), 0);
    allowed_ = {};
  }
  void open(const std::string& operation = "open") { open_with(options_, operation); }
  // The folder of this path is not there, and what the others hold goes on without it.
  void open_without(std::size_t path) {
    allowed_.lost.insert(path);
    SwapStoreOptions others = options_;
    others.directories[path] += "-away";
    open_with(others, "open without a path");
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
    if (fails) {
      allowed_ = before;
      return;
    }
    if (!before.attempts.empty()) before_newest_ = *before.attempts.begin();
    allowed_.attempts = {number};
    allowed_.no_store = false;
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
  void pin(const std::string& name, bool fails = false, const std::string& operation = "pin") {
    const Allowed before = allowed_;
    allowed_.pins[name] = *allowed_.attempts.begin();
    allowed_.unsure_pins.insert(name);
    in(operation, [&] {
      if (fails)
        EXPECT_THROW(store_->pin(name), IoError);
      else
        store_->pin(name);
    });
    if (!fails) {
      allowed_.unsure_pins.erase(name);
    } else if (store_->pins().size() == before.pins.size()) {
      allowed_ = before;  // it was taken back
    } else {
      undecided_pins_.insert(name);
    }
  }
  void unpin(const std::string& name) {
    allowed_.unsure_pins.insert(name);
    in("unpin", [&] { store_->unpin(name); });
    allowed_.pins.erase(name);
    allowed_.unsure_pins.erase(name);
    undecided_pins_.erase(name);
  }
  void go_back_to_pin(const std::string& name) {
    const std::size_t number = allowed_.pins.at(name);
    allowed_.attempts.insert(number);
    in("go back to a pin", [&] { store_->go_back_to_pin(name); });
    allowed_.attempts = {number};
    current_ = attempts_[number];
  }
  // From the newest commit to the one before it.
  void go_back() {
    const std::size_t older = before_newest_;
    allowed_.attempts.insert(older);
    in("position_at", [&] { store_->position_at(attempts_[older].step); });
    allowed_.attempts = {older};
    current_ = attempts_[older];
  }
  // Of a closed store: afterwards every path is part of it again and every piece of the newest commit whole.
  void repair() {
    in("repair", [&] {
      const SwapRepair done = SwapStore::repair(options_.directories, engine_);
      EXPECT_THAT(done.problems, ::testing::IsEmpty());
    });
    const SwapDescription found = SwapStore::describe(options_.directories);
    keep(found.commits.back());
    keep_pins(found.pins);
    allowed_.lost.clear();
    allowed_.damaged = false;
  }
  void remove_and_close() {
    give_up();
    store_->remove_on_close();
    in("remove", [&] { store_.reset(); });
  }
  // The store may be replaced by another one from now on.
  void give_up() { allowed_.no_store = true; }
  // Its process was killed before the last such call: the kernel keeps what it was given until then, as far
  // as no power is lost. What was under way may be found from now on.
  void killed_before_the_last(FileCall call, const std::string& suffix) {
    store_.reset();
    const auto last = std::find_if(recording_.rbegin(), recording_.rend(), [&](const Moment& moment) {
      return moment.event.call == call && moment.event.path.ends_with(suffix);
    });
    HEADRACE_CHECK(last != recording_.rend(), "no such call on {} was recorded", suffix);
    allowed_ = last->before;
    recording_.erase(last.base() - 1, recording_.end());
    LossyDisk disk = *start_;
    for (const Moment& moment : recording_) apply(moment, disk);
    write_image(disk.current(), folder_.path());
  }

  // Calls before this are durable: the recording starts here.
  void record_from_here() {
    recording_.clear();
    start_.emplace(folder_.path());
  }
  // The next call of this kind on such a path fails with EIO.
  void fail(FileCall call, std::string suffix) { fault_ = {call, std::move(suffix)}; }
  // Every call on this path fails from now on, until it answers again.
  void lose_path(std::size_t path) {
    allowed_.lost.insert(path);
    dead_folder_ = folder_of(path);
  }
  void path_answers_again() { dead_folder_.clear(); }
  // That it is no part of the store may be found from now on.
  void call_lost(std::size_t path) { allowed_.lost.insert(path); }
  void call_damaged() { allowed_.damaged = true; }
  // Another folder, not there yet, takes the place of a path's.
  void replace_folder(std::size_t path) { options_.directories[path] += "-new"; }

  void end() {
    recording_.push_back({{}, false, "end", allowed_});
    store_.reset();
  }
  static std::size_t number_of(const SwapCommit& commit) {
    std::size_t number = 0;
    std::from_chars(commit.metadata.data(), commit.metadata.data() + commit.metadata.size(), number);
    return number;
  }
  static void apply(const Moment& moment, LossyDisk& disk) {
    moment.failed ? disk.apply_failed(moment.event) : disk.apply(moment.event);
  }
  const std::vector<Moment>& recording() const { return recording_; }
  const LossyDisk& start() const { return *start_; }
  const std::vector<Attempt>& attempts() const { return attempts_; }
  std::string folder() const { return folder_.path(); }
  const SwapStoreOptions& options() const { return options_; }
  const std::string& folder_of(std::size_t path) const { return options_.directories[path]; }
  const Shape& shape() const { return shape_; }

 private:
  void open_with(const SwapStoreOptions& options, const std::string& operation) {
    in(operation, [&] { store_ = SwapStore::open(options, engine_); });
    keep(store_->commits().back());
    keep_pins(store_->pins());
    const std::vector<std::string> lost = store_->lost_directories();
    std::erase_if(allowed_.lost, [&](std::size_t path) {
      return std::find(lost.begin(), lost.end(), options.directories[path]) == lost.end();
    });
  }
  // Whoever opened or repaired the store was told of this commit: no other may be found from now on.
  void keep(const SwapCommit& found) {
    const std::size_t number = number_of(found);
    HEADRACE_CHECK(allowed_.attempts.contains(number), "attempt {} is found", number);
    allowed_.attempts = {number};
    current_ = attempts_[number];
  }

  void keep_pins(const std::vector<SwapPin>& found) {
    std::erase_if(allowed_.pins, [&](const auto& pin) {
      return std::ranges::find(found, pin.first, &SwapPin::name) == found.end();
    });
    std::erase_if(allowed_.unsure_pins,
                  [&](const std::string& name) { return !undecided_pins_.contains(name); });
  }

  void in(const std::string& operation, const std::function<void()>& action) {
    const SyscallHook hook(folder_.path(), [&](const FileEvent& event) {
      const bool of_lock = event.path.ends_with("/lock");
      if (of_lock && (event.call == FileCall::write || event.call == FileCall::truncate)) return 0;
      const bool once = fault_ && event.call == fault_->first && event.path.ends_with(fault_->second);
      if (once) fault_.reset();
      const bool hit = once || (!dead_folder_.empty() && event.path.starts_with(dead_folder_));
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
  std::size_t before_newest_ = 0;  // of two attempts that are committed
  Allowed allowed_;
  std::set<std::string> undecided_pins_;  // after a flush that failed, until they are unpinned
  std::uint64_t seed_ = 0;
  std::optional<std::pair<FileCall, std::string>> fault_;
  std::string dead_folder_;
  std::unique_ptr<SwapStore> store_;
};

}  // namespace headrace::testing
