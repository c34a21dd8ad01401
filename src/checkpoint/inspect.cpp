#include "headrace/inspect.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>

#include "headrace/errors.h"
#include "headrace/state_hash.h"
#include "src/checkpoint/engine_layout.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t blocks_in_flight = 4;
constexpr Bytes memory_alignment = 4096;

struct RankStore {
  std::vector<std::string> directories;
  InspectedRank facts;
  EngineLayout layout;
  std::vector<SwapCommit> commits;
};

using Folders = std::vector<std::string>;

bool holds_store(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "store.json", ignored);
}

// Folders rank-N of a swap path that hold a store, by N.
void add_ranks(const std::string& path, std::set<std::uint64_t>& ranks) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view prefix = "rank-";
    const bool is_rank = name.size() > prefix.size() && name.starts_with(prefix) &&
                         name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
    if (is_rank && holds_store(entry.path()))
      ranks.insert(std::strtoull(name.c_str() + prefix.size(), nullptr, 10));
  }
}

// The others of a store of which one folder is given.
Folders with_siblings(const std::string& folder) {
  try {
    return SwapStore::directories_of(folder);
  } catch (const Error&) {
    return {folder};  // what opens it says what is wrong
  }
}

RankStore describe_rank(const Folders& directories) {
  const std::string directory = fmt::format("{}", fmt::join(directories, ", "));
  SwapDescription description = SwapStore::describe(directories);
  RankStore store;
  store.layout = parse_engine_layout(description.layout);
  if (store.layout.blocks.size() != description.blocks.size())
    throw CorruptData(fmt::format("{} has {} blocks, its layout {}", directory, description.blocks.size(),
                                  store.layout.blocks.size()));
  InspectedRank& facts = store.facts;
  store.directories = directories;
  facts.directory = directory;
  facts.parity = description.parity;
  facts.paths = std::move(description.paths);
  facts.rank = store.layout.rank;
  facts.world_size = store.layout.world_size;
  facts.stage = store.layout.stage;
  facts.dtype = store.layout.dtype;
  facts.optimizer_sharded = store.layout.optimizer_sharded;
  facts.durability = description.durability;
  facts.owner = description.owner;
  for (const SwapCommit& commit : description.commits) facts.steps.push_back(commit.step);
  facts.units = store.layout.units.size();
  facts.parameters = store.layout.parameters;
  facts.parameter_numel = store.layout.parameter_numel();
  facts.blocks = description.blocks.size();
  for (std::size_t i = 0; i < description.blocks.size(); ++i) {
    facts.blocks_bytes += description.blocks[i].bytes;
    if (description.blocks[i].bytes != store.layout.blocks[i].numel * layout_bytes_per_element)
      throw CorruptData(fmt::format("block \"{}\" of {} has {} bytes, its layout says {} elements",
                                    description.blocks[i].name, directory, description.blocks[i].bytes,
                                    store.layout.blocks[i].numel));
  }
  facts.extents_bytes = description.extents_bytes;
  facts.layout_identity = fmt::format(
      "{:08x} ({} bytes)", crc32c(std::as_bytes(std::span(description.layout))), description.layout.size());
  store.commits = std::move(description.commits);
  return store;
}

const SwapCommit* commit_of(const RankStore& store, std::uint64_t step) {
  for (const SwapCommit& commit : store.commits)
    if (commit.step == step) return &commit;
  return nullptr;
}

std::optional<std::uint64_t> newest_common_step(const std::vector<RankStore>& stores) {
  std::optional<std::uint64_t> newest;
  for (const SwapCommit& candidate : stores.front().commits)
    if (std::all_of(stores.begin(), stores.end(),
                    [&](const RankStore& store) { return commit_of(store, candidate.step) != nullptr; }))
      newest = candidate.step;
  return newest;
}

// Reads every block in order, a few ahead. `visit` gets the block's floats; damage goes to `damaged`.
class BlockReader {
 public:
  explicit BlockReader(SwapStore& store) : store_(store) {
    Bytes largest = 0;
    for (std::uint32_t block = 0; block < store.blocks().size(); ++block)
      largest = std::max(largest, store.buffer_bytes(block));
    buffer_bytes_ = round_up(std::max(largest, memory_alignment), memory_alignment);
    memory_.reset(
        static_cast<std::byte*>(std::aligned_alloc(memory_alignment, buffer_bytes_ * blocks_in_flight)));
    if (memory_ == nullptr) throw std::bad_alloc();
  }

  void run(const std::function<void(std::uint32_t block, std::span<const float> values)>& visit,
           const std::function<void(const Error&)>& damaged) {
    const auto blocks = static_cast<std::uint32_t>(store_.blocks().size());
    std::deque<SwapTicket> ahead;
    std::uint32_t next = 0;
    for (std::uint32_t block = 0; block < blocks; ++block) {
      for (; next < blocks && next < block + blocks_in_flight; ++next)
        ahead.push_back(store_.read(next, buffer(next)));
      SwapTicket ticket = std::move(ahead.front());
      ahead.pop_front();
      try {
        ticket.wait();
      } catch (const Error& error) {
        damaged(error);
        continue;
      }
      const HostLease lease = ticket.take();
      visit(block,
            {reinterpret_cast<const float*>(lease.data()), store_.blocks()[block].bytes / sizeof(float)});
    }
  }

 private:
  HostLease buffer(std::uint32_t block) {
    return HostLease::borrowed({memory_.get() + (block % blocks_in_flight) * buffer_bytes_, buffer_bytes_});
  }
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  SwapStore& store_;
  Bytes buffer_bytes_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
};

class Inspection {
 public:
  Inspection(const std::vector<std::string>& paths, const InspectOptions& options, IoEngine& engine)
      : options_(options), engine_(engine), paths_(paths) {
    report_.path = fmt::format("{}", fmt::join(paths, ", "));
  }

  InspectReport run() {
    for (const Folders& folders : swap_stores_in(paths_))
      guarded([&] {
        stores_.push_back(describe_rank(folders));
        SwapStore::open_read_only(folders, engine_);  // its files are there and as long as they should be
      });
    if (!stores_.empty()) {
      const bool complete = check_ranks();
      choose_step();
      if (report_.step && (options_.verify || options_.hash)) read_states(complete);
    }
    for (RankStore& store : stores_) {
      for (const SwapPath& path : store.facts.paths)
        if (path.state != SwapPath::State::good)
          report_.problems.push_back(
              fmt::format("{} is lost: {} The state is whole by parity; --repair brings the path back.",
                          path.directory, path.problem));
      report_.ranks.push_back(std::move(store.facts));
    }
    return std::move(report_);
  }

 private:
  template <class Action>
  void guarded(const Action& action) {
    try {
      action();
    } catch (const Error& error) {
      report_.problems.emplace_back(error.what());
    }
  }

  // Whether the stores here hold the whole state.
  bool check_ranks() {
    const EngineLayout& first = stores_.front().layout;
    std::vector<bool> present(first.world_size, false);
    for (const RankStore& store : stores_) {
      const EngineLayout& layout = store.layout;
      if (layout.world_size != first.world_size || layout.stage != first.stage ||
          layout.optimizer_sharded != first.optimizer_sharded) {
        report_.problems.push_back(fmt::format(
            "{} is of another run than {}: world size {} and {}, stage {} and {}", store.facts.directory,
            stores_.front().facts.directory, layout.world_size, first.world_size, layout.stage, first.stage));
        return false;
      }
      if (layout.rank < present.size()) present[layout.rank] = true;
    }
    std::vector<std::size_t> missing;
    for (std::size_t rank = 0; rank < present.size(); ++rank)
      if (!present[rank]) missing.push_back(rank);
    const bool complete = missing.empty() || !first.optimizer_sharded;
    if (!missing.empty())
      (complete || !options_.hash ? report_.notes : report_.problems)
          .push_back(fmt::format("of {} ranks, these are not here: {}{}", present.size(),
                                 fmt::join(missing, ", "),
                                 complete ? "" : "; the state hash needs all of them"));
    return complete;
  }

  void choose_step() {
    report_.step = newest_common_step(stores_);
    if (!report_.step) {
      const bool kept = stores_.front().facts.durability == Durability::step;
      (kept ? report_.problems : report_.notes)
          .push_back(kept ? "the ranks have no committed step in common"
                          : "durability none: no state is kept across runs");
      return;
    }
    const std::string& metadata = commit_of(stores_.front(), *report_.step)->metadata;
    for (const RankStore& store : stores_)
      if (commit_of(store, *report_.step)->metadata != metadata)
        report_.problems.push_back(fmt::format("step {} of {} is not of the same run as that of {}",
                                               *report_.step, store.facts.directory,
                                               stores_.front().facts.directory));
    const bool newest_everywhere = std::all_of(stores_.begin(), stores_.end(), [&](const RankStore& store) {
      return store.commits.back().step == *report_.step;
    });
    if (!newest_everywhere)
      report_.notes.push_back(
          fmt::format("the ranks' last steps differ; step {} is the newest that all have", *report_.step));
    guarded([&] {
      const CommitState state = parse_commit_state(metadata);
      report_.steps_applied = state.steps_applied;
      report_.data_position = state.data_position;
      report_.loss_scale = state.loss_scale;
    });
  }

  void read_states(bool complete) {
    std::vector<BlockSum> sums;
    for (RankStore& store : stores_) {
      guarded([&] { sums.push_back(read_rank(store)); });
      if (options_.verify) check_other_steps(store);
    }
    if (options_.hash && complete && report_.good()) finish_hash(sums);
  }

  BlockSum read_rank(RankStore& store) {
    const std::unique_ptr<SwapStore> swap = SwapStore::open_read_only(store.directories, engine_);
    const auto commits = swap->commits();
    if (std::none_of(commits.begin(), commits.end(),
                     [&](const SwapCommit& c) { return c.step == *report_.step; }))
      throw Error(
          fmt::format("step {} of {} was given up while it was read", *report_.step, store.facts.directory));
    swap->position_at(*report_.step);
    for (std::uint32_t block = 0; block < swap->blocks().size(); ++block)
      if (swap->extents(block).empty())
        throw CorruptData(fmt::format("block \"{}\" of {} was never written", swap->blocks()[block].name,
                                      store.facts.directory));
    BlockSum total;
    BlockReader(*swap).run(
        [&](std::uint32_t block, std::span<const float> values) {
          store.facts.checked_bytes += values.size_bytes();
          if (!options_.hash) return;
          const BlockSum sum = hash_block(store.layout, store.layout.blocks[block], values);
          total.sum += sum.sum;
          total.numel += sum.numel;
        },
        [&](const Error& error) { report_.problems.emplace_back(error.what()); });
    if (options_.verify && store.facts.parity > 0) verify_pieces(*swap);
    return total;
  }

  // Parity too, which reading a block does not touch. Lost paths are told once, not for each piece.
  void verify_pieces(SwapStore& swap) {
    if (!swap.lost_directories().empty()) return;
    for (std::uint32_t block = 0; block < swap.blocks().size(); ++block)
      for (std::string& problem : swap.damage(block)) report_.problems.push_back(std::move(problem));
  }

  // Going to a step checks the extents that it does not share with the newest one. An older step that is not
  // whole is no damage: what released its extents to the next step is not flushed, and a loss of power takes
  // it away.
  void check_other_steps(const RankStore& store) {
    for (const SwapCommit& commit : store.commits) {
      if (commit.step == *report_.step) continue;
      try {
        SwapStore::open_read_only(store.directories, engine_)->position_at(commit.step);
      } catch (const CorruptData& error) {
        if (commit.step > *report_.step)
          report_.problems.emplace_back(error.what());
        else
          report_.notes.push_back(
              fmt::format("of step {}, which step {} replaced, {} no longer holds every block", commit.step,
                          *report_.step, store.facts.directory));
      } catch (const Error& error) {
        report_.problems.emplace_back(error.what());
      }
    }
  }

  void finish_hash(const std::vector<BlockSum>& sums) {
    const RankStore& first = stores_.front();
    const CommitState state = parse_commit_state(commit_of(first, *report_.step)->metadata);
    BlockSum total = sums.front();
    for (std::size_t i = 1; i < stores_.size(); ++i) {
      const RankStore& store = stores_[i];
      if (first.layout.optimizer_sharded) {
        total.sum += sums[i].sum;
        total.numel += sums[i].numel;
      } else if (sums[i].sum != sums.front().sum) {
        report_.problems.push_back(
            fmt::format("ranks {} and {} hold different optimizer states, which stage {} "
                        "replicates",
                        first.layout.rank, store.layout.rank, first.layout.stage));
      }
    }
    if (const std::uint64_t numel = first.layout.parameter_numel(); total.numel != numel)
      report_.problems.push_back(
          fmt::format("the blocks of all ranks hold {} of the model's {} elements", total.numel, numel));
    if (report_.good())
      report_.state_hash = finish_state_hash(total.sum, state.steps_applied, state.rng_state,
                                             state.loss_scale, state.data_position);
  }

  const InspectOptions options_;
  IoEngine& engine_;
  const std::vector<std::string> paths_;
  InspectReport report_;
  std::vector<RankStore> stores_;
};

}  // namespace

std::vector<std::vector<std::string>> swap_stores_in(const std::vector<std::string>& paths) {
  if (std::any_of(paths.begin(), paths.end(), holds_store))
    return {paths.size() == 1 ? with_siblings(paths.front()) : paths};
  std::set<std::uint64_t> ranks;  // in numeric order: rank-100000 comes after rank-99999
  for (const std::string& path : paths) add_ranks(path, ranks);
  if (ranks.empty())
    throw UsageError(
        fmt::format("there is no swap store in {}: neither store.json nor a folder rank-00000 with one. "
                    "Give the --swap-path of a run.",
                    fmt::join(paths, ", ")));
  std::vector<Folders> stores;
  for (const std::uint64_t rank : ranks) {
    Folders folders;
    for (const std::string& path : paths)
      folders.push_back((fs::path(path) / fmt::format("rank-{:05}", rank)).string());
    stores.push_back(folders.size() == 1 ? with_siblings(folders.front()) : std::move(folders));
  }
  return stores;
}

InspectReport inspect_swap_path(const std::vector<std::string>& paths, const InspectOptions& options,
                                IoEngine& engine) {
  constexpr int attempts = 5;
  for (int attempt = 1;; ++attempt) {
    InspectReport report = Inspection(paths, options, engine).run();
    const bool alive = std::any_of(report.ranks.begin(), report.ranks.end(), [](const InspectedRank& rank) {
      return rank.owner.state == SwapOwner::State::alive;
    });
    if (report.good() || !alive) return report;
    if (attempt == attempts) {
      report.notes.emplace_back(
          "the run is alive, and its states move on while they are read: what is called a problem "
          "may be that; look again after it has stopped");
      return report;
    }
  }
}

}  // namespace headrace
