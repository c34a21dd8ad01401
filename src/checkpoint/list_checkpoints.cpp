// The checkpoints of a folder, each looked at without reading its files.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "headrace/checkpoint_report.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/swap_store.h"
#include "src/checkpoint/checkpoint_files.h"
#include "src/checkpoint/folder.h"
#include "src/checkpoint/open_manifest.h"
#include "src/checkpoint/text_table.h"

namespace headrace {
namespace {

using nlohmann::ordered_json;
using State = ListedCheckpoint::State;

std::string_view name_of(const ListedCheckpoint& one) {
  switch (one.state) {
    case State::whole:
      return one.pinned ? "pinned in swap stores" : "whole";
    case State::repairable:
      return "damaged, parity may rebuild it";
    case State::damaged:
      return "damaged";
    case State::partial:
      break;
  }
  return "partial";
}

// Of the files in it, and when the last of them was written.
void look_at_disk(ListedCheckpoint& one) {
  std::error_code error;
  for (std::filesystem::directory_iterator file(one.path, error), end; !error && file != end;
       file.increment(error)) {
    struct stat status {};
    if (::stat(file->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    one.bytes += static_cast<Bytes>(status.st_size);
    one.written_at = std::max<std::int64_t>(one.written_at, status.st_mtime);
  }
}

// Whether the swap stores are still where they were; what is in them is for `inspect` of the checkpoint.
void look_for_stores(ListedCheckpoint& one, const Manifest& manifest) {
  one.pinned = manifest.is_pinned();
  for (const ManifestStore& store : manifest.stores) {
    const auto is_the_store = [&](const std::string& directory) {
      try {
        return SwapStore::id_of(directory) == store.id;
      } catch (const Error&) {
        return false;
      }
    };
    if (std::ranges::any_of(store.directories, is_the_store)) continue;
    one.state = State::damaged;
    one.problems.push_back(fmt::format("the swap store in {} that keeps its states is not there",
                                       fmt::join(store.directories, ", ")));
  }
}

void look_at_manifest(ListedCheckpoint& one) {
  try {
    const Manifest manifest = open_manifest(one.path);
    one.step = manifest.step;
    one.sequence = manifest.sequence;
    one.world_size = manifest.world_size;
    if (manifest.is_pinned()) return look_for_stores(one, manifest);
    if (!manifest.problem.empty()) one.problems.push_back(manifest.problem);
    const std::vector<FileProblem> problems = look_at_files(one.path, manifest);
    for (const FileProblem& problem : problems)
      one.problems.push_back(fmt::format("{} {}", manifest.file(problem.file).name, problem.what));
    if (one.problems.empty()) return;
    one.state =
        manifest.parity && parity_makes_up_for(problems, manifest) ? State::repairable : State::damaged;
  } catch (const Error& error) {
    one.state = State::damaged;
    one.problems.emplace_back(error.what());
  }
}

ListedCheckpoint look_at(const std::string& path) {
  ListedCheckpoint one;
  one.path = path;
  one.step = step_of_name(std::filesystem::path(path).filename().string());
  look_at_disk(one);
  look_at_manifest(one);
  return one;
}

// "2026-05-09 17:31", of this machine's time zone.
std::string time_text(std::int64_t seconds) {
  if (seconds == 0) return "-";
  const std::time_t time = seconds;
  std::tm parts{};
  std::array<char, 32> text{};
  if (::localtime_r(&time, &parts) == nullptr) return "-";
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &parts)};
}

}  // namespace

std::vector<ListedCheckpoint> list_checkpoints(const std::string& directory) {
  std::vector<ListedCheckpoint> listed;
  const CheckpointFolder folder = seen_of(directory);
  for (const std::string& path : folder.damaged) listed.push_back(look_at(path));
  for (const FoundCheckpoint& found : folder.found) listed.push_back(look_at(found.path));
  for (const std::string& path : folder.partial) {
    ListedCheckpoint& one = listed.emplace_back();
    one.path = path;
    one.state = State::partial;
    look_at_disk(one);
  }
  return listed;
}

bool all_whole(const std::vector<ListedCheckpoint>& listed) {
  return std::ranges::all_of(listed, [](const ListedCheckpoint& one) {
    return one.state == State::whole || one.state == State::partial;
  });
}

std::string list_text(const std::string& directory, const std::vector<ListedCheckpoint>& listed) {
  const auto partial =
      static_cast<std::size_t>(std::ranges::count(listed, State::partial, &ListedCheckpoint::state));
  const std::size_t count = listed.size() - partial;
  std::string text =
      fmt::format("{} checkpoint{} in {}, in the order of saving\n", count, count == 1 ? "" : "s", directory);
  TextTable table({"checkpoint", "step", "ranks", "size", "saved", "state"},
                  {false, true, true, true, false, false});
  for (const ListedCheckpoint& one : listed)
    table.add({one.path, one.step ? std::to_string(*one.step) : "-",
               one.world_size == 0 ? "-" : std::to_string(one.world_size), format_bytes(one.bytes),
               time_text(one.written_at), std::string(name_of(one))});
  text += table.text(2);
  for (const ListedCheckpoint& one : listed)
    for (const std::string& problem : one.problems)
      text += fmt::format("problem: {}: {}\n", one.path, problem);
  if (partial > 0)
    text +=
        "partial: what a save leaves that was ended half-way, or that is going on; the next save removes "
        "it\n";
  if (count > 0 && all_whole(listed))
    text += "all files are there; --verify of a checkpoint reads every byte\n";
  return text;
}

std::string list_json(const std::string& directory, const std::vector<ListedCheckpoint>& listed) {
  ordered_json all = ordered_json::array(), partial = ordered_json::array();
  const auto or_null = [](const std::optional<std::uint64_t>& number) {
    return number ? ordered_json(*number) : ordered_json();
  };
  for (const ListedCheckpoint& one : listed) {
    if (one.state == State::partial)
      partial.push_back(one.path);
    else
      all.push_back({{"path", one.path},
                     {"step", or_null(one.step)},
                     {"sequence", or_null(one.sequence)},
                     {"world_size", one.world_size},
                     {"bytes", one.bytes},
                     {"written_at", one.written_at},
                     {"state", one.state == State::whole ? "whole" : "damaged"},
                     {"parity_may_rebuild", one.state == State::repairable},
                     {"pinned", one.pinned},
                     {"problems", one.problems}});
  }
  return ordered_json{
      {"directory", directory}, {"checkpoints", std::move(all)}, {"partial", std::move(partial)}}
      .dump(2);
}

}  // namespace headrace
