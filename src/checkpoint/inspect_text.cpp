#include <fmt/format.h>

#include <algorithm>

#include "headrace/inspect.h"
#include "src/checkpoint/inspect_names.h"
#include "src/checkpoint/text_table.h"

namespace headrace {
namespace {

std::string owner_text(const SwapOwner& owner) {
  switch (owner.state) {
    case SwapOwner::State::none:
      return "none (closed cleanly)";
    case SwapOwner::State::alive:
      return fmt::format("process {} on {}, running", owner.pid, owner.host);
    case SwapOwner::State::dead:
      return fmt::format("process {} on {}, gone", owner.pid, owner.host);
    case SwapOwner::State::unknown:
      return fmt::format("process {} on {} (cannot be seen from here)", owner.pid, owner.host);
  }
  return "";
}

// "3 (1 block), 4 (12 blocks)": the newest first, the rest summed up.
std::string generations_text(const InspectedRank& rank) {
  constexpr std::size_t shown = 4;
  std::vector<std::string> parts;
  std::uint64_t older = 0;
  for (auto entry = rank.generations.rbegin(); entry != rank.generations.rend(); ++entry) {
    const auto [generation, blocks] = *entry;
    if (parts.size() < shown)
      parts.push_back(generation == 0
                          ? fmt::format("never written ({})", blocks)
                          : fmt::format("{} ({} block{})", generation, blocks, blocks == 1 ? "" : "s"));
    else
      older += blocks;
  }
  if (older > 0) parts.push_back(fmt::format("older ones ({})", older));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// "step-00000004-1 (step 4), ..."
std::string pins_text(const InspectedRank& rank) {
  std::vector<std::string> parts;
  for (const SwapPin& pin : rank.pins)
    parts.push_back(fmt::format("{} (step {})", pin.name, pin.commit.step));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string count_text(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// "damaged (4 of 12)" where reading has shown it.
std::string state_text(const InspectedPath& path) {
  const std::string_view state = name_of(path.facts.state);
  return path.damaged_pieces == 0 ? std::string(state)
                                  : fmt::format("{} ({} of {})", state, path.damaged_pieces, path.pieces);
}

// One line a path.
std::string paths_text(const InspectedRank& rank) {
  TextTable table({"path", "state", "extents"}, {false, false, true});
  for (const InspectedPath& path : rank.paths)
    table.add({path.facts.directory, state_text(path), format_bytes(path.facts.extents_bytes)});
  return table.text(2);
}

// One line a path: its journals hold the same, unless one was lost or is being written.
std::string journals_text(const InspectedRank& rank) {
  TextTable table({"path", "state", "extents", "owner", "commits", "sequence", "journal", "torn", "released"},
                  {false, false, true, false, true, true, true, true, false});
  for (const InspectedPath& path : rank.paths) {
    std::vector<std::string> row = {
        path.facts.directory, state_text(path), format_bytes(path.facts.extents_bytes),
        path.facts.owner.pid == 0
            ? "none"
            : fmt::format("{} {}", path.facts.owner.pid, name_of(path.facts.owner.state))};
    if (path.journal) {
      const SwapJournal& journal = *path.journal;
      const auto commits = std::count_if(
          journal.records.begin(), journal.records.end(),
          [](const SwapJournalRecord& record) { return record.kind == SwapJournalRecord::Kind::commit; });
      row.push_back(fmt::to_string(commits));
      row.push_back(journal.records.empty() ? "-" : fmt::to_string(journal.records.back().sequence));
      row.push_back(
          fmt::format("{} of {}", format_bytes(journal.file_bytes), format_bytes(journal.disk_bytes)));
      row.push_back(journal.torn_bytes == 0 ? "none" : format_bytes(journal.torn_bytes));
      row.push_back(journal.released() ? "yes" : "no");
    } else {
      row.insert(row.end(), {"-", "-", "-", "-", "-"});
    }
    table.add(std::move(row));
  }
  return table.text(2);
}

std::string records_text(const SwapJournal& journal) {
  TextTable table({"record", "sequence", "step", "offset", "bytes", "entries", "metadata"},
                  {false, true, true, true, true, true, true});
  for (const SwapJournalRecord& record : journal.records)
    table.add({std::string(name_of(record.kind)), fmt::to_string(record.sequence),
               fmt::to_string(record.step), fmt::to_string(record.offset), fmt::to_string(record.bytes),
               fmt::to_string(record.entries), fmt::to_string(record.metadata_bytes)});
  return fmt::format("  {}\n{}", journal.path, table.text(2));
}

std::string blocks_text(const InspectedRank& rank) {
  TextTable table({"block", "bytes", "state", "generation", "crc32c", "path", "offset", "length"},
                  {false, true, false, true, true, false, true, true});
  for (const InspectedBlock& block : rank.block_list) {
    const std::string state(name_of(block.state));
    if (block.extents.empty())
      table.add({block.name, fmt::to_string(block.bytes), state, "-", "-", "-", "-", "-"});
    for (std::size_t piece = 0; piece < block.extents.size(); ++piece) {
      const SwapStore::Extent& extent = block.extents[piece];
      table.add({piece == 0 ? block.name : "", piece == 0 ? fmt::to_string(block.bytes) : "",
                 piece == 0 ? state : "", fmt::to_string(extent.generation),
                 fmt::format("{:08x}", extent.crc32c), extent.path, fmt::to_string(extent.offset),
                 fmt::to_string(extent.length)});
    }
  }
  return table.text(2);
}

std::string sizes_text(const InspectedRank& rank) {
  return fmt::format("{}, {}; {} on disk, durability {}", count_text(rank.blocks, "block"),
                     format_bytes(rank.blocks_bytes), format_bytes(rank.disk_bytes),
                     name_of(rank.durability));
}

std::string checked_text(const InspectedRank& rank) {
  const std::string read = format_bytes(rank.read_bytes);
  return rank.checked_bytes == rank.read_bytes ? fmt::format("{}, all good", read)
                                               : fmt::format("{}, of which {} in blocks without damage", read,
                                                             format_bytes(rank.checked_bytes));
}

// What the journals say, and how old the blocks are.
std::string details_text(const InspectedRank& rank) {
  std::string text = '\n' + journals_text(rank);
  const auto with_journal = std::find_if(rank.paths.begin(), rank.paths.end(), [](const InspectedPath& path) {
    return path.journal && (path.facts.state == SwapPath::State::good || path.damaged_pieces > 0);
  });
  if (with_journal != rank.paths.end() && !with_journal->journal->records.empty())
    text += '\n' + records_text(*with_journal->journal);
  return text;
}

std::string rank_text(const InspectedRank& rank, bool journal) {
  std::string text = fmt::format("rank {} of {}: {}\n", rank.rank, rank.world_size, rank.directory);
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<12}{}\n", name, value);
  };
  line("owner", owner_text(rank.owner));
  if (rank.paths.size() > 1)
    line("paths", fmt::format("{}, of which {} may be lost", rank.paths.size(), rank.parity));
  line("steps", rank.steps.empty() ? "none committed" : fmt::format("{}", fmt::join(rank.steps, ", ")));
  if (!rank.pins.empty()) line("pinned", pins_text(rank));
  line("model",
       fmt::format("{}, {}, {}; stage {}, {}, optimizer states {}", count_text(rank.units, "unit"),
                   count_text(rank.parameters, "parameter"), count_text(rank.parameter_numel, "element"),
                   rank.stage, rank.dtype, rank.optimizer_sharded ? "sharded" : "replicated"));
  line("states", text_of(rank.states));
  line("sizes", sizes_text(rank));
  if (journal && !rank.generations.empty()) line("generations", generations_text(rank));
  if (journal) line("layout", rank.layout_identity);
  if (rank.read_bytes > 0) line("checked", checked_text(rank));
  text += journal ? details_text(rank) : '\n' + paths_text(rank);
  if (!rank.block_list.empty()) text += '\n' + blocks_text(rank);
  return text + '\n';
}

}  // namespace

std::string to_text(const SwapRepair& repair) {
  std::string text;
  for (const SwapRepairedPath& path : repair.paths)
    text += fmt::format("{}: {} pieces checked, {} rebuilt ({}){}\n", path.directory, path.pieces_checked,
                        path.pieces_rebuilt, format_bytes(path.bytes_rebuilt),
                        path.rejoined ? ", part of the store again" : "");
  for (const std::string& problem : repair.problems) text += fmt::format("problem: {}\n", problem);
  return text;
}

std::string to_text(const InspectReport& report, bool journal) {
  std::string text = fmt::format("swap path {}\n", report.path);
  for (const InspectedRank& rank : report.ranks) text += rank_text(rank, journal);
  if (report.step)
    text += fmt::format("step {}: {} optimizer steps applied, data position {}, loss scale {}\n",
                        *report.step, report.steps_applied, report.data_position, report.loss_scale);
  if (report.state_hash) text += fmt::format("state hash {:016x}\n", *report.state_hash);
  for (const std::string& note : report.notes) text += fmt::format("note: {}\n", note);
  for (const std::string& problem : report.problems) text += fmt::format("problem: {}\n", problem);
  if (report.stopped) text += "stopped: not every byte was checked\n";
  return text;
}

}  // namespace headrace
