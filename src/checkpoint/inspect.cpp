#include "headrace/inspect.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "headrace/errors.h"
#include "headrace/state_hash.h"
#include "src/checkpoint/block_reader.h"
#include "src/checkpoint/damage.h"
#include "src/checkpoint/rank_store.h"

namespace headrace {
namespace {

std::optional<std::uint64_t> newest_common_step(const std::vector<RankStore>& stores) {
  std::optional<std::uint64_t> newest;
  for (const SwapCommit& candidate : stores.front().commits)
    if (std::all_of(stores.begin(), stores.end(),
                    [&](const RankStore& store) { return store.commit_of(candidate.step) != nullptr; }))
      newest = candidate.step;
  return newest;
}

class Inspection {
 public:
  Inspection(const std::vector<std::string>& paths, const InspectOptions& options, IoEngine& engine,
             const InspectControl& control)
      : paths_(paths), options_(options), engine_(engine), control_(control) {
    report_.path = fmt::format("{}", fmt::join(paths, ", "));
  }

  InspectReport run() {
    for (const std::vector<std::string>& folders : swap_stores_in(paths_)) {
      guarded([&] {
        RankStore& rank = stores_.emplace_back(describe_rank(folders));
        open_rank(rank, folders, options_.blocks, engine_);
      });
    }
    if (!stores_.empty()) {
      const bool complete = check_ranks();
      choose_step();
      if (report_.step && (options_.verify || options_.hash)) read_states(complete);
    }
    name_lost_paths();  // after the hash, which parity gives all the same
    for (RankStore& store : stores_) {
      mark_damaged_paths(store.facts);
      report_.ranks.push_back(std::move(store.facts));
    }
    return std::move(report_);
  }

 private:
  template <class Action>
  void guarded(const Action& action) {
    try {
      action();
    } catch (const WrongSwapPaths&) {
      throw;
    } catch (const Error& error) {
      report_.problems.emplace_back(error.what());
    }
  }

  // A line a folder, and on the last of them what to do: one command brings those of all ranks back.
  void name_lost_paths() {
    std::vector<SwapPath> lost;
    for (const RankStore& store : stores_)
      for (const InspectedPath& path : store.facts.paths) {
        if (path.facts.state == SwapPath::State::good) continue;
        report_.problems.push_back(fmt::format("{} is lost: {}.", path.facts.directory, path.facts.problem));
        SwapPath named = path.facts;
        named.directory = swap_path_of(named.directory);
        if (std::ranges::find(lost, named.directory, &SwapPath::directory) == lost.end())
          lost.push_back(std::move(named));
      }
    if (lost.empty()) return;
    report_.problems.back() +=
        fmt::format("{}: {}.", damage_.is_whole() ? " The state is whole by parity" : " To have it back",
                    how_to_bring_back(lost, swap_paths()));
  }

  // What reading has shown of paths whose small files are good.
  void mark_damaged_paths(InspectedRank& rank) {
    for (InspectedPath& path : rank.paths) {
      if (path.facts.state != SwapPath::State::good) continue;
      const Damage::Pieces pieces = damage_.in(path.facts.directory);
      path.pieces = pieces.read;
      path.damaged_pieces = pieces.damaged;
      if (pieces.damaged == 0) continue;
      path.facts.state = SwapPath::State::damaged;
      path.facts.problem = fmt::format("{} of {} {} damaged", pieces.damaged, pieces.read,
                                       rank.parity > 0 ? "pieces" : "blocks");
    }
  }

  // Whether the stores here hold the whole state.
  bool check_ranks() {
    const EngineLayout& first = stores_.front().layout;
    std::vector<bool> present(first.world_size, false);
    for (const RankStore& store : stores_) {
      const EngineLayout& layout = store.layout;
      if (layout.world_size != first.world_size || layout.stage != first.stage ||
          layout.optimizer_sharded != first.optimizer_sharded || layout.states != first.states) {
        report_.problems.push_back(fmt::format(
            "{} is of another run than {}: world size {} and {}, stage {} and {}, states of {} and {}",
            store.facts.directory, stores_.front().facts.directory, layout.world_size, first.world_size,
            layout.stage, first.stage, text_of(layout.states), text_of(first.states)));
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

  bool nothing_committed() const {
    return std::all_of(stores_.begin(), stores_.end(),
                       [](const RankStore& store) { return store.commits.empty(); });
  }

  bool is_running() const {
    return std::ranges::any_of(
        stores_, [](const RankStore& store) { return store.facts.owner.state == SwapOwner::State::alive; });
  }

  void say_why_there_is_no_step() {
    if (stores_.front().facts.durability == Durability::none) {
      if (options_.hash)
        report_.problems.emplace_back(
            "durability none: no state is kept across runs, so there is none to hash. `train` prints the "
            "hash of such a run at its end.");
      else
        report_.notes.emplace_back("durability none: no state is kept across runs");
    } else if (!nothing_committed()) {
      report_.problems.emplace_back("the ranks have no committed step in common");
    } else if (!is_running()) {
      report_.problems.emplace_back("no step was committed yet; start without --resume swap");
    } else if (options_.hash) {
      report_.problems.emplace_back(
          "no step was committed yet, so there is no state to hash: the run has just started");
    } else {
      report_.notes.emplace_back("no step was committed yet: the run has just started");
    }
  }

  void choose_step() {
    report_.step = newest_common_step(stores_);
    if (!report_.step) return say_why_there_is_no_step();
    const std::string& metadata = stores_.front().commit_of(*report_.step)->metadata;
    for (const RankStore& store : stores_)
      if (store.commit_of(*report_.step)->metadata != metadata)
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
    for (const RankStore& store : stores_) total_ += bytes_to_read(store);
    std::vector<BlockSum> sums;
    for (RankStore& store : stores_)
      if (store.store && go_on()) guarded([&] { sums.push_back(read_rank(store)); });
    if (options_.verify)
      for (RankStore& store : stores_)
        if (store.store) check_pins(store);
    for (std::string& line : damage_.lines(swap_paths())) report_.problems.push_back(std::move(line));
    if (options_.blocks)
      for (const RankStore& store : stores_)
        for (const InspectedDamage& damage : store.facts.damage) report_.problems.push_back(damage.problem);
    if (report_.stopped) return;
    if (options_.hash && complete && report_.good()) finish_hash(sums);
  }

  bool go_on() {
    if (!report_.stopped && control_.stop_requested) report_.stopped = control_.stop_requested();
    return !report_.stopped;
  }

  void count(Bytes bytes) {
    done_ += bytes;
    if (control_.progress) control_.progress(std::min(done_, total_), total_);
  }

  // Parity too is read, which reading a block does not touch. Of lost paths it is told once, not for each
  // piece.
  bool checks_pieces(const RankStore& rank) const {
    return options_.verify && rank.facts.parity > 0 && rank.store;
  }
  Bytes bytes_to_read(const RankStore& rank) const {
    const bool older = rank.commits.empty() || rank.commits.back().step != *report_.step;
    const Bytes pins = options_.verify ? rank.facts.pins.size() : 0;
    const Bytes passes =
        (checks_pieces(rank) && options_.hash ? 2 : 1) + (older && options_.verify ? 1 : 0) + pins;
    return rank.store ? passes * rank.facts.blocks_bytes : 0;
  }

  std::vector<std::string> swap_paths() const {
    std::vector<std::string> paths;
    for (const RankStore& store : stores_)
      for (const InspectedPath& path : store.facts.paths)
        if (const std::string name = swap_path_of(path.facts.directory);
            std::find(paths.begin(), paths.end(), name) == paths.end())
          paths.push_back(name);
    return paths;
  }

  // Newest first: going to an older step hides the newer one.
  BlockSum read_rank(RankStore& rank) {
    if (rank.commits.back().step != *report_.step) {
      if (options_.verify) read_step(rank, false, true);
      if (!go_on()) return {};
      rank.store->position_at(*report_.step);
      return read_step(rank, options_.hash, false);
    }
    const BlockSum sum = read_step(rank, options_.hash, true);
    if (options_.verify && rank.commits.size() > 1 && go_on()) check_older_step(rank);
    return sum;
  }

  // Where the store is positioned; the list of blocks is of the newest step.
  BlockSum read_step(RankStore& rank, bool hash, bool listed) {
    SwapStore& store = *rank.store;
    for (std::uint32_t block = 0; block < store.blocks().size(); ++block)
      if (store.extents(block).empty())
        throw CorruptData(fmt::format("block \"{}\" of {} was never written", store.blocks()[block].name,
                                      rank.facts.directory));
    const bool pieces = checks_pieces(rank);
    const bool damaged = pieces && check_pieces(rank, listed);
    if (pieces && (damaged || !hash)) return {};
    return read_blocks(rank, hash, listed && !pieces);
  }

  // A block was read, and this found damaged. `listed`: in the step of which the list of blocks is.
  void note(RankStore& rank, std::uint32_t block, const std::vector<SwapStore::DamagedPiece>& found,
            bool listed) {
    const std::vector<SwapStore::Extent> pieces = rank.store->extents(block);
    const SwapBlock& facts = rank.store->blocks()[block];
    const auto lost = static_cast<std::uint32_t>(rank.store->lost_directories().size());
    damage_.add(pieces, found, rank.facts.parity > 0, rank.facts.parity - std::min(rank.facts.parity, lost));
    for (const SwapStore::DamagedPiece& wrong : found)
      rank.facts.damage.push_back({facts.name, pieces.at(wrong.piece), wrong.problem});
    rank.facts.read_bytes += facts.bytes;
    if (found.empty()) rank.facts.checked_bytes += facts.bytes;
    if (listed && block < rank.facts.block_list.size())
      rank.facts.block_list[block].state =
          found.empty() ? InspectedBlock::State::good : InspectedBlock::State::damaged;
  }

  BlockSum read_blocks(RankStore& rank, bool hash, bool listed) {
    SwapStore& store = *rank.store;
    BlockSum total;
    const bool counted = checks_pieces(rank);
    BlockReader(store).run(
        [&](std::uint32_t block, std::span<std::byte> bytes) {
          if (!counted) note(rank, block, {}, listed);
          count(bytes.size());
          if (!hash) return;
          const BlockSum sum = hash_block(rank.layout, rank.layout.blocks[block], bytes);
          total.sum += sum.sum;
          total.numel += sum.numel;
        },
        [&](std::uint32_t block, const Error& error) {
          std::vector<SwapStore::DamagedPiece> found = store.damage(block);
          if (found.empty()) found.push_back({0, error.what()});
          note(rank, block, found, listed);
          count(store.blocks()[block].bytes);
        },
        [&] { return go_on(); });
    return total;
  }

  // Whether any piece is damaged.
  bool check_pieces(RankStore& rank, bool listed) {
    SwapStore& store = *rank.store;
    bool any = false;
    for (std::uint32_t block = 0; block < store.blocks().size() && go_on(); ++block) {
      const std::vector<SwapStore::DamagedPiece> found = store.damage(block);
      note(rank, block, found, listed);
      count(store.blocks()[block].bytes);
      any = any || !found.empty();
    }
    return any;
  }

  // Going to a step checks the extents that it does not share with the newest one. An older step that is not
  // whole is no damage: what released its extents to the next step is not flushed, and a loss of power takes
  // it away.
  void check_older_step(RankStore& rank) {
    const std::uint64_t older = rank.commits.front().step;
    guarded([&] {
      try {
        rank.store->position_at(older);
      } catch (const CorruptData&) {
        report_.notes.push_back(
            fmt::format("of step {}, which step {} replaced, {} no longer holds every block", older,
                        *report_.step, rank.facts.directory));
      }
    });
  }

  // Going to a pin hides all else.
  void check_pins(RankStore& rank) {
    for (const SwapPin& pin : rank.facts.pins) {
      if (!go_on()) return;
      guarded([&] {
        rank.store->position_at_pin(pin.name);
        read_step(rank, false, false);
      });
    }
  }

  void finish_hash(const std::vector<BlockSum>& sums) {
    const RankStore& first = stores_.front();
    const CommitState state = parse_commit_state(first.commit_of(*report_.step)->metadata);
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

  const std::vector<std::string> paths_;
  const InspectOptions options_;
  IoEngine& engine_;
  const InspectControl& control_;
  InspectReport report_;
  Damage damage_;
  Bytes done_ = 0, total_ = 0;  // of what is read
  std::vector<RankStore> stores_;
};

}  // namespace

InspectReport inspect_swap_path(const std::vector<std::string>& paths, const InspectOptions& options,
                                IoEngine& engine, const InspectControl& control) {
  constexpr int attempts = 5;
  for (int attempt = 1;; ++attempt) {
    InspectReport report = Inspection(paths, options, engine, control).run();
    const bool alive = std::any_of(report.ranks.begin(), report.ranks.end(), [](const InspectedRank& rank) {
      return rank.owner.state == SwapOwner::State::alive;
    });
    if (report.good() || report.stopped || !alive) return report;
    if (attempt == attempts) {
      report.notes.emplace_back(
          "the run is alive, and its states move on while they are read: what is called a problem "
          "may be that; look again after it has stopped");
      return report;
    }
  }
}

}  // namespace headrace
