// Disks as the loss of power may leave them at each moment of a recorded run, and what must be found on each:
// the last step whose commit() returned, or the one being committed, with every byte of every block; no path
// called lost that was not, and no path believed whose pieces are old; and a repair that makes all whole.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "headrace/errors.h"
#include "swap/description.h"
#include "tests/unit/swap/recorded_run.h"

namespace headrace::testing {

// Opens disks and says what is wrong with them.
class DiskCheck {
 public:
  DiskCheck(const RecordedRun& run, IoEngine& engine) : run_(run), engine_(engine) {
    for (const Attempt& attempt : run.attempts())
      for (std::size_t block = 0; block < attempt.seeds.size(); ++block) {
        std::vector<std::byte> contents(RecordedRun::block_sizes[block]);
        fill(contents, attempt.seeds[block]);
        contents_[attempt.seeds[block]] = std::move(contents);
      }
  }

  // Empty when the disks are as they may be, also without one of the paths. Where nothing unflushed is lost,
  // as when the process was only killed, the commit before the last one must be as whole as it is called.
  enum class Lost : std::uint8_t { nothing, something };
  std::string operator()(const LossyDisk::Image& image, const Allowed& allowed, Lost lost,
                         std::mt19937& random) {
    Trial trial = some_trial(allowed, random);
    trial.lost = lost;
    const std::size_t key = key_of(image, allowed, trial);
    if (seen_.contains(key)) return "";
    write_image(image, folder_.path("disk"));
    SwapStoreOptions options = run_.options();
    for (std::string& directory : options.directories)
      directory = folder_.path("disk") + directory.substr(run_.folder().size());
    Allowed then = allowed;
    if (trial.missing) {
      std::filesystem::remove_all(options.directories[*trial.missing]);
      then.lost.insert(*trial.missing);
    }
    if (const std::string names = wrong_names(options, then); !names.empty()) return names;
    const Older older = lost == Lost::nothing ? Older::must_be_whole : Older::may_be_refused;
    std::string wrong;
    if (!trial.repaired_at_once)
      wrong = found_in(options, then, trial.repaired ? Older::stays : older, trial.may_be_refused);
    if (wrong.empty() && trial.repaired) wrong = found_repaired(options, then, older);
    if (wrong.empty()) seen_.insert(key);
    return wrong.empty() || !trial.missing ? wrong
                                           : fmt::format("without path {}: {}", *trial.missing, wrong);
  }
  std::size_t disks() const { return seen_.size(); }

 private:
  enum class Older : std::uint8_t { may_be_refused, must_be_whole, stays };  // commit, when gone back to
  struct Trial {
    std::optional<std::size_t> missing;  // path
    bool may_be_refused = false;         // more is missing than parity makes up for
    bool repaired = false, repaired_at_once = false;
    Lost lost = Lost::something;
  };

  Trial some_trial(const Allowed& allowed, std::mt19937& random) const {
    Trial trial;
    const std::uint32_t parity = run_.shape().parity;
    if (parity == 0) return trial;
    if (random() % 4 != 0) trial.missing = random() % run_.shape().paths;
    if (trial.missing && !allowed.lost.contains(*trial.missing))
      trial.may_be_refused = allowed.spent_parity() + 1 > parity;
    if (trial.may_be_refused && random() % 4 != 0) trial.missing.reset(), trial.may_be_refused = false;
    if (allowed.spent_parity() == 0 || allowed.no_store || trial.may_be_refused) return trial;
    trial.repaired = random() % 2 == 0;
    trial.repaired_at_once = trial.repaired && random() % 2 == 0;
    return trial;
  }

  std::string found_in(const SwapStoreOptions& options, const Allowed& allowed, Older older,
                       bool may_be_refused) {
    try {
      return state_of(options, allowed, older);
    } catch (const Error& error) {
      if (may_be_refused) return "";
      const bool none_there = dynamic_cast<const UsageError*>(&error) != nullptr && allowed.no_store;
      return none_there ? another_run_begins(options) : error.what();
    }
  }

  std::string found_repaired(const SwapStoreOptions& options, Allowed allowed, Older older) {
    try {
      const SwapRepair repair = SwapStore::repair(options.directories, engine_);
      if (!repair.problems.empty()) return fmt::format("a repair says: {}", fmt::join(repair.problems, "; "));
      allowed.lost.clear();
      allowed.damaged = false;
      const std::string wrong = state_of(options, allowed, older);
      return wrong.empty() ? "" : "after a repair: " + wrong;
    } catch (const Error& error) {
      return fmt::format("a repair ends in: {}", error.what());
    }
  }

  static std::size_t key_of(const LossyDisk::Image& image, const Allowed& allowed, const Trial& trial) {
    std::string text = allowed.no_store ? "-" : "+";
    if (trial.missing) text += std::to_string(*trial.missing) + "!";
    if (trial.repaired) text += trial.repaired_at_once ? "R" : "r";
    if (trial.lost == Lost::nothing) text += "=";
    for (const std::size_t attempt : allowed.attempts) text += std::to_string(attempt) + ",";
    for (const std::size_t path : allowed.lost) text += fmt::format("lost {},", path);
    for (const auto& [name, attempt] : allowed.pins)
      text += fmt::format("{}{} {},", name, allowed.unsure_pins.contains(name) ? "?" : "", attempt);
    std::size_t key = std::hash<std::string>{}(text);
    for (const auto& [path, contents] : image) {
      key = key * 0x9E3779B97F4A7C15 + std::hash<std::string>{}(path);
      key = key * 0x9E3779B97F4A7C15 + std::hash<std::string>{}(contents);
    }
    return key;
  }

  std::string state_of(const SwapStoreOptions& options, const Allowed& allowed, Older older) {
    const auto store = SwapStore::open(options, engine_);
    const std::vector<SwapCommit> commits = store->commits();
    const std::size_t found = RecordedRun::number_of(commits.back());
    if (!allowed.attempts.contains(found))
      return fmt::format("step {} (attempt {}) is found", commits.back().step, found);
    if (std::string text = wrong_blocks(*store, commits.back()); !text.empty()) return text;
    if (std::string text = wrong_paths(*store, options, allowed); !text.empty()) return text;
    if (std::string text = wrong_pins(*store, options, allowed); !text.empty()) return text;
    if (commits.size() < 2 || older == Older::stays) return "";
    try {
      store->position_at(commits.front().step);
    } catch (const CorruptData& error) {  // its extents were used again, before the release was on the disk
      return older == Older::must_be_whole ? error.what() : "";
    }
    return wrong_blocks(*store, commits.front());
  }

  std::string wrong_blocks(SwapStore& store, const SwapCommit& commit) {
    const Attempt& attempt = run_.attempts()[RecordedRun::number_of(commit)];
    if (attempt.step != commit.step)
      return fmt::format("attempt at step {} has {}", attempt.step, commit.step);
    for (std::uint32_t block = 0; block < attempt.seeds.size(); ++block) {
      const std::uint64_t seed = attempt.seeds[block];
      if (store.extents(block).empty() != (seed == 0))
        return fmt::format("block {} of step {}: written is not written", block, commit.step);
      if (seed == 0) continue;
      store.read(block, buffer_.lease()).wait();
      const auto bytes = buffer_.memory().first(RecordedRun::block_sizes[block]);
      if (!std::equal(bytes.begin(), bytes.end(), contents_.at(seed).begin()))
        return fmt::format("block {} of step {} has other bytes", block, commit.step);
    }
    return "";
  }

  // What the store says of its paths is true: parity that it counts on is there.
  static std::string wrong_paths(SwapStore& store, const SwapStoreOptions& options, const Allowed& allowed) {
    if (allowed.no_store || options.parity == 0) return "";
    for (const std::string& lost : store.lost_directories()) {
      const auto path = std::find(options.directories.begin(), options.directories.end(), lost);
      if (!allowed.lost.contains(static_cast<std::size_t>(path - options.directories.begin())))
        return fmt::format("{} is called lost", lost);
    }
    for (std::uint32_t block = 0; block < store.blocks().size() && !allowed.damaged; ++block)
      if (const auto damage = store.damage(block); !damage.empty())
        return fmt::format("a path is believed, and {}", damage.front().problem);
    return "";
  }

  // What is pinned is what was, and every byte of it is there.
  std::string wrong_pins(SwapStore& store, const SwapStoreOptions& options, const Allowed& allowed) {
    std::vector<SwapPin> found = store.pins();
    for (const auto& [name, attempt] : allowed.pins)
      if (!allowed.unsure_pins.contains(name) &&
          std::ranges::find(found, name, &SwapPin::name) == found.end())
        return fmt::format("{} is not pinned", name);
    for (const SwapPin& pin : found) {
      const std::size_t attempt = RecordedRun::number_of(pin.commit);
      if (const auto is = allowed.pins.find(pin.name); is == allowed.pins.end() || is->second != attempt)
        return fmt::format("attempt {} is pinned as {}", attempt, pin.name);
      const auto reader = SwapStore::open_read_only(options.directories, engine_);
      reader->position_at_pin(pin.name);
      if (const std::string text = wrong_blocks(*reader, pin.commit); !text.empty())
        return fmt::format("of {}: {}", pin.name, text);
    }
    return "";
  }

  // Each folder names those of all paths.
  std::string wrong_names(const SwapStoreOptions& options, const Allowed& allowed) const {
    if (allowed.no_store || allowed.spent_parity() > 0 || options.directories.size() == 1) return "";
    try {
      for (const std::string& directory : options.directories)
        if (const auto names = swap::read_description(directory).directories;
            names != run_.options().directories)
          return fmt::format("{} names {}", directory, fmt::join(names, ", "));
      return "";
    } catch (const Error& error) {
      return error.what();
    }
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

  const RecordedRun& run_;
  IoEngine& engine_;
  TemporaryFolder folder_{memory_folder()};
  Buffer buffer_{16384};
  std::map<std::uint64_t, std::vector<std::byte>> contents_;
  std::unordered_set<std::size_t> seen_;
};

// The mixtures tried of `changes` unflushed changes: all lost, all kept, each one alone lost, kept or torn,
// and random ones.
inline std::vector<std::vector<Fate>> mixtures(std::size_t changes, std::size_t random_ones,
                                               std::mt19937& random) {
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

// How many of them a replay tries at each moment; those that lose all and keep all are always among them.
struct Effort {
  std::size_t random_ones = 0, at_most = 0;
  bool one_order = false;  // of names, in turn
};

inline std::vector<std::vector<Fate>> some_mixtures(std::size_t changes, Effort effort,
                                                    std::mt19937& random) {
  std::vector<std::vector<Fate>> all = mixtures(changes, effort.random_ones, random);
  if (all.size() <= effort.at_most) return all;
  std::shuffle(all.begin(), all.end(), random);
  all.resize(effort.at_most);
  all.emplace_back(changes, Fate::lose);
  all.emplace_back(changes, Fate::keep);
  return all;
}

inline DiskCheck::Lost lost_by(const std::vector<Fate>& fates) {
  const bool all_kept = std::all_of(fates.begin(), fates.end(), [](Fate fate) { return fate == Fate::keep; });
  return all_kept ? DiskCheck::Lost::nothing : DiskCheck::Lost::something;
}

// Replays a recording and tries the disks before each of its calls. Returns the first that is not as it may
// be.
inline std::string replay(const RecordedRun& run, DiskCheck& check, Effort effort, unsigned seed) {
  LossyDisk disk = run.start();
  std::mt19937 random(seed);
  for (std::size_t call = 0; call < run.recording().size(); ++call) {
    const Moment& moment = run.recording()[call];
    for (const auto names : {LossyDisk::Names::independent, LossyDisk::Names::in_order}) {
      if (effort.one_order && (names == LossyDisk::Names::independent) != ((call + seed) % 2 == 0)) continue;
      for (const std::vector<Fate>& fates : some_mixtures(disk.unflushed(), effort, random))
        if (const std::string wrong =
                check(disk.image(fates, random, names), moment.before, lost_by(fates), random);
            !wrong.empty())
          return fmt::format("seed {}, before call {} ({}): {}", seed, call, moment.operation, wrong);
    }
    if (moment.operation != "end") RecordedRun::apply(moment, disk);
  }
  return "";
}

}  // namespace headrace::testing
