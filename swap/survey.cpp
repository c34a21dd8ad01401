#include "swap/survey.h"

#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <map>
#include <tuple>

#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/shell_words.h"
#include "swap/advice.h"
#include "swap/journal.h"

namespace headrace::swap {
using namespace files;
namespace {

using State = SwapPath::State;

// A given folder: its description, or why there is none.
struct Folder {
  std::string directory;
  std::optional<Description> description;
  std::exception_ptr error;
  std::string problem;
  State state = State::missing;
  int code = 0;
};

// A sentence that another goes on.
std::string as_clause(std::string text) {
  if (text.ends_with('.')) text.pop_back();
  return text;
}

int code_of(const Error& error) {
  const auto* failed = dynamic_cast<const IoError*>(&error);
  return failed == nullptr ? 0 : failed->code();
}

// Files that no empty folder has: their drive is there.
bool holds_other_files(const std::string& directory) {
  return file_exists(join(directory, journal_name)) || file_exists(join(directory, extents_name));
}

Folder look_at(const std::string& directory) {
  Folder folder{directory, {}, {}, {}};
  try {
    folder.description = read_description(directory);
    folder.state = State::good;
  } catch (const Error& error) {
    folder.error = std::current_exception();
    folder.code = code_of(error);
    if (holds_description(directory)) {
      folder.state = State::damaged;
      folder.problem = as_clause(error.what());
    } else if (holds_other_files(directory)) {
      folder.state = State::damaged;
      folder.problem = fmt::format("{} is missing", join(directory, description_name));
    } else {
      folder.problem = folder_exists(directory) ? fmt::format("there is no swap store in {}", directory)
                                                : fmt::format("{} does not exist", directory);
    }
  }
  return folder;
}

std::vector<Folder> look_at(const std::vector<std::string>& directories) {
  HEADRACE_CHECK(!directories.empty(), "a swap store without a path");
  std::vector<Folder> folders;
  for (const std::string& directory : directories) folders.push_back(look_at(directory));
  return folders;
}

// Of the store's lists of paths the newest; where repairs that did not know of each other made two of one
// revision, the one that more folders have.
Description common_store(const std::vector<Folder>& folders) {
  std::map<std::uint64_t, std::size_t> members;
  std::map<std::vector<std::string>, std::size_t> holders;
  for (const Folder& folder : folders) {
    if (!folder.description) continue;
    ++members[folder.description->store_id];
    ++holders[folder.description->directories];
  }
  const auto weight = [&](const Description& store) {
    return std::tuple(members[store.store_id], store.shape.paths == folders.size());
  };
  const auto list_weight = [&](const Description& store) {
    return std::tuple(store.directories_revision, holders[store.directories]);
  };
  const Description* best = nullptr;
  for (const Folder& folder : folders) {
    if (!folder.description) continue;
    const Description& other = *folder.description;
    if (best == nullptr || weight(other) > weight(*best) ||
        (other.store_id == best->store_id && list_weight(other) > list_weight(*best)))
      best = &other;
  }
  if (best == nullptr) rethrow_with_advice(folders.front().error, std::nullopt);
  return *best;
}

void check_count(const std::vector<Folder>& folders, const Description& store) {
  if (folders.size() == store.shape.paths) return;
  std::vector<std::string> all(store.shape.paths), missing, others;
  for (const Folder& folder : folders) {
    const bool is_member = folder.description && folder.description->store_id == store.store_id;
    if (is_member && all[folder.description->path].empty())
      all[folder.description->path] = folder.directory;
    else
      others.push_back(folder.directory);
  }
  for (std::uint32_t p = 0; p < all.size(); ++p)
    if (all[p].empty()) missing.push_back(all[p] = store.directories[p]);
  const auto list = [](const std::vector<std::string>& names, std::string_view is, std::string_view are) {
    return names.empty() ? ""
                         : fmt::format(", {} {}", fmt::join(names, " and "), names.size() == 1 ? is : are);
  };
  throw WrongSwapPaths(fmt::format(
      "the swap store has {} path{}, and {} given here{}{}. Give all of them: {}", all.size(),
      all.size() == 1 ? "" : "s", folders.size() == 1 ? "1 is" : fmt::format("{} are", folders.size()),
      list(missing, "is missing", "are missing"), list(others, "is none of them", "are none of them"),
      shell_words(all)));
}

// Each folder of the store is put at its number; the others fill the places that are left, in order.
std::vector<SurveyedPath> assign_paths(std::vector<Folder>& folders, const Description& store,
                                       std::vector<std::exception_ptr>& errors) {
  std::vector<SurveyedPath> paths(store.shape.paths);
  errors.assign(paths.size(), nullptr);
  std::vector<Folder*> others;
  for (Folder& folder : folders) {
    if (!folder.description || folder.description->store_id != store.store_id) {
      others.push_back(&folder);
      continue;
    }
    SurveyedPath& path = paths[folder.description->path];
    if (!path.directory.empty())
      throw WrongSwapPaths(
          fmt::format("{} and {} are copies of the same path of a swap store. Give one of them.",
                      path.directory, folder.directory));
    path = {.directory = folder.directory,
            .state = State::good,
            .problem = "",
            .owns_directory = folder.description->owns_directory,
            .known_directories = folder.description->directories,
            .journal = {},
            .pins = {}};
  }
  auto other = others.begin();
  for (std::uint32_t p = 0; p < paths.size(); ++p) {
    if (!paths[p].directory.empty()) continue;
    Folder& folder = **other++;
    paths[p].directory = folder.directory;
    paths[p].state = folder.description ? State::foreign : folder.state;
    paths[p].problem =
        folder.description
            ? fmt::format("{} belongs to another swap store than the other paths; {} is wanted in its place",
                          folder.directory, store.directories[p])
            : folder.problem;
    paths[p].code = folder.code;
    errors[p] = folder.error;
  }
  return paths;
}

void mark(SurveyedPath& path, State state, std::string problem) {
  path.state = state;
  path.problem = std::move(problem);
  path.journal.reset();
  path.pins = {};
}

void check_table(const CommitRecord& record, const StripeMap& map, const std::string& file) {
  for (std::uint32_t block = 0; block < map.blocks(); ++block)
    for (std::uint32_t piece = 0; piece < map.shape().pieces(); ++piece) {
      const ExtentEntry& entry = record.table[map.entry(block, piece)];
      if (entry.generation > 0 && !map.is_extent_of(block, piece, entry))
        throw CorruptData(
            fmt::format("{} places block {} of step {} at offset {} of path {}, where it has no extent.",
                        file, block, record.commit.step, entry.offset, entry.path));
    }
}

void check_extents_file(const std::string& directory, Bytes expected) {
  const std::string path = join(directory, extents_name);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw IoError("stat", path, 0, 0, errno);
  if (static_cast<Bytes>(status.st_size) < expected)
    throw CorruptData(
        fmt::format("{} is cut short: it has {} bytes and should have {}.", path, status.st_size, expected));
}

// ext4, for one, makes a failing disk read-only.
void check_writable(const std::string& directory) {
  if (::access(directory.c_str(), W_OK) != 0)
    throw UsageError(fmt::format("{} cannot be written: {}", directory, std::strerror(errno)));
}

FolderPins checked_pins(const std::string& directory, std::uint32_t number, const Survey& survey) {
  FolderPins pins = read_pins(directory, survey.description.journal_identity(number));
  std::erase_if(pins.whole, [&](const Pin& pin) {
    try {
      check_table(pin.record, survey.map, fmt::format("{} in {}", pin.name, directory));
      return false;
    } catch (const CorruptData& error) {
      pins.broken.push_back({pin.name, error.what()});
      return true;
    }
  });
  return pins;
}

// The files of the path beside store.json.
void read_files(SurveyedPath& path, std::uint32_t number, const Survey& survey) {
  check_extents_file(path.directory, survey.map.file_bytes(number));
  if (survey.description.shape.durability != Durability::step) return;
  JournalContents contents = Journal::read(path.directory, survey.description.journal_identity(number));
  for (const auto* record : {&contents.history.superseded, &contents.history.newest})
    if (*record) check_table(**record, survey.map, join(path.directory, journal_name));
  path.journal = std::move(contents);
  if (survey.description.shape.pins > 0) path.pins = checked_pins(path.directory, number, survey);
}

// What any good path holds.
void find_pins(Survey& survey) {
  for (const SurveyedPath& path : survey.paths)
    for (const Pin& pin : path.pins.whole) {
      const auto known = std::ranges::find(survey.pins, pin.name, &Pin::name);
      if (known == survey.pins.end())
        survey.pins.push_back(pin);
      else if (known->record.sequence < pin.record.sequence)
        *known = pin;
    }
  std::ranges::sort(survey.pins, {}, [](const Pin& pin) { return std::pair(pin.record.sequence, pin.name); });
  if (survey.pins.size() > survey.description.shape.pins)
    throw CorruptData(
        fmt::format("the swap store in {} was made for {} pinned versions and has {}: files of other "
                    "versions were copied "
                    "into it.",
                    survey.paths.front().directory, survey.description.shape.pins, survey.pins.size()));
  for (const SurveyedPath& path : survey.paths)
    for (const BrokenPin& broken : path.pins.broken)
      if (std::ranges::find(survey.pins, broken.name, &Pin::name) == survey.pins.end())
        survey.broken_pins.push_back(broken);
}

// What speaks for a state: its epoch; where a kill left two of one epoch, how many journals hold it, for the
// one that the store went on with was noted on all of them; then the newest commit beside it.
std::array<std::uint64_t, 3> weight_of(const PathsState& state, const std::vector<SurveyedPath>& paths) {
  std::uint64_t holders = 0, sequence = 0;
  for (const SurveyedPath& path : paths) {
    if (!path.journal || path.journal->state != state) continue;
    ++holders;
    if (const auto& newest = path.journal->history.newest) sequence = std::max(sequence, newest->sequence);
  }
  return {state.epoch, holders, sequence};
}

// The state that counts; paths that it calls lost are stale.
void find_stale_paths(Survey& survey) {
  std::array<std::uint64_t, 3> most{};
  for (const SurveyedPath& path : survey.paths) {
    if (!path.journal) continue;
    if (const auto weight = weight_of(path.journal->state, survey.paths); weight > most) {
      most = weight;
      survey.stored_state = path.journal->state;
    }
  }
  for (std::uint32_t p = 0; p < survey.paths.size(); ++p)
    if (SurveyedPath& path = survey.paths[p]; path.state == State::good && survey.stored_state.is_lost(p))
      mark(path, State::stale,
           fmt::format("the store went on without {} after it was lost, and its contents are old",
                       path.directory));
}

// A journal more than one commit behind is not that of a kill between two appends. It is old, or damaged:
// what an append leaves unfinished is no longer than one record.
void find_old_journals(Survey& survey) {
  const auto sequence_of = [](const SurveyedPath& path) {
    return path.journal && path.journal->history.newest ? path.journal->history.newest->sequence : 0;
  };
  const auto leader = std::ranges::max_element(survey.paths, {}, sequence_of);
  const std::uint64_t newest = sequence_of(*leader);
  if (newest == 0) return;
  const CommitRecord& record = *leader->journal->history.newest;
  const Bytes record_bytes = commit_record_bytes(record.table.size(), record.commit.metadata.size());
  for (SurveyedPath& path : survey.paths) {
    if (!path.journal || sequence_of(path) + 1 >= newest) continue;
    const std::string file = join(path.directory, journal_name);
    // Half a record more: metadata differs in length from step to step.
    if (const Bytes rest = path.journal->torn_bytes; rest > record_bytes + record_bytes / 2)
      mark(path, State::damaged,
           fmt::format("{} is damaged at offset {}: of the {} bytes from there on no record checks", file,
                       path.journal->append_offset, rest));
    else
      mark(path, State::stale,
           fmt::format("{} ends {} commits before those of the other paths", file,
                       newest - sequence_of(path)));
  }
}

// Two commits of one number: that of fewer journals was taken back, or is of a copy that went on by itself.
void find_other_histories(Survey& survey) {
  const auto newest_of = [](const SurveyedPath& path) -> const CommitRecord* {
    return path.journal && path.journal->history.newest ? &*path.journal->history.newest : nullptr;
  };
  const auto holders_of = [&](const CommitRecord& record) {
    return std::count_if(survey.paths.begin(), survey.paths.end(), [&](const SurveyedPath& path) {
      return newest_of(path) != nullptr && *newest_of(path) == record;
    });
  };
  const CommitRecord* leader = nullptr;
  for (const SurveyedPath& path : survey.paths)
    if (const CommitRecord* record = newest_of(path))
      if (leader == nullptr || record->sequence > leader->sequence ||
          (record->sequence == leader->sequence && holders_of(*record) > holders_of(*leader)))
        leader = record;
  for (SurveyedPath& path : survey.paths)
    if (const CommitRecord* record = newest_of(path);
        record != nullptr && record->sequence == leader->sequence && !(*record == *leader))
      mark(path, State::stale,
           fmt::format("{} holds another commit of the same number as the other paths",
                       join(path.directory, journal_name)));
}

[[noreturn]] void throw_not_enough(const Survey& survey, const std::vector<std::exception_ptr>& errors) {
  std::vector<std::string> problems;
  bool missing = false;
  for (std::uint32_t p = 0; p < survey.paths.size(); ++p) {
    const SurveyedPath& path = survey.paths[p];
    if (path.state == State::good) continue;
    if (survey.lost_count() == 1 && path.state == State::damaged && errors[p])
      rethrow_with_advice(errors[p], survey.description.shape.parity);
    missing = missing || path.state == State::missing;
    problems.push_back(path.problem);
  }
  // Without store.json there is no store, whatever files a run that ended while it made one has left.
  const bool all_missing =
      std::all_of(survey.paths.begin(), survey.paths.end(), [](const SurveyedPath& path) {
        return path.state == State::good || !holds_description(path.directory);
      });
  const std::string text = fmt::format(
      "the swap store cannot be opened without {} of its {} paths, its parity makes up for {}: {}. "
      "{}, or {}.",
      problems.size(), survey.paths.size(), survey.description.shape.parity, fmt::join(problems, "; "),
      missing ? "Mount what is missing" : "Restore the files", how_to_start_anew);
  if (all_missing) throw UsageError(text);
  throw CorruptData(text);
}

}  // namespace

std::uint32_t Survey::lost_count() const {
  return static_cast<std::uint32_t>(std::count_if(
      paths.begin(), paths.end(), [](const SurveyedPath& path) { return path.state != State::good; }));
}

bool Survey::is_sure_to_be_newest() const {
  return 2 * lost_count() < paths.size() || state.lost == stored_state.lost;
}

CommitHistory agreed_history(const std::vector<const JournalContents*>& journals) {
  const JournalContents* leader = nullptr;
  for (const JournalContents* journal : journals)
    if (journal->history.newest &&
        (leader == nullptr || journal->history.newest->sequence > leader->history.newest->sequence))
      leader = journal;
  if (leader == nullptr) return {};
  CommitHistory history = leader->history;
  for (const JournalContents* journal : journals)
    if (journal->history.newest && journal->history.newest->sequence == history.newest->sequence &&
        journal->released)
      history.superseded.reset();
  return history;
}

CommonStore find_common_store(const std::vector<std::string>& directories) {
  const std::vector<Folder> folders = look_at(directories);
  CommonStore store{common_store(folders), {}};
  for (const Folder& folder : folders)
    if (folder.description && folder.description->store_id == store.description.store_id)
      store.number_of[folder.directory] = folder.description->path;
  return store;
}

Survey survey_store(const std::vector<std::string>& directories, Access access,
                    const RefusedFolders& refused) {
  std::vector<Folder> folders = look_at(directories);
  const Description store = common_store(folders);
  check_count(folders, store);
  std::vector<std::exception_ptr> errors;
  std::vector<SurveyedPath> paths = assign_paths(folders, store, errors);
  Survey survey{.description = store,
                .map = store.map(),
                .paths = std::move(paths),
                .state = {},
                .stored_state = {},
                .history = {},
                .pins = {},
                .broken_pins = {}};
  for (std::uint32_t p = 0; p < survey.paths.size(); ++p) {
    if (survey.paths[p].state != State::good) continue;
    try {
      if (const auto why = refused.find(survey.paths[p].directory); why != refused.end())
        std::rethrow_exception(why->second);
      if (access == Access::write && store.shape.parity > 0) check_writable(survey.paths[p].directory);
      read_files(survey.paths[p], p, survey);
    } catch (const Error& error) {
      errors[p] = std::current_exception();
      mark(survey.paths[p], State::damaged, as_clause(error.what()));
      survey.paths[p].code = code_of(error);
    }
  }
  find_stale_paths(survey);
  find_old_journals(survey);
  find_other_histories(survey);
  if (survey.lost_count() > survey.description.shape.parity) throw_not_enough(survey, errors);

  std::vector<const JournalContents*> journals;
  for (const SurveyedPath& path : survey.paths)
    if (path.journal) journals.push_back(&*path.journal);
  survey.history = agreed_history(journals);
  find_pins(survey);
  survey.state = survey.stored_state;
  for (std::uint32_t p = 0; p < survey.paths.size(); ++p)
    if (survey.paths[p].state != State::good) survey.state.lost |= std::uint64_t{1} << p;
  return survey;
}

Survey survey_live_store(const std::vector<std::string>& directories) {
  for (int tries = 3; tries > 1; --tries) {
    try {
      return survey_store(directories, Access::read);
    } catch (const Error&) {
      const bool alive =
          std::any_of(directories.begin(), directories.end(), [](const std::string& directory) {
            return read_owner(directory).state == SwapOwner::State::alive;
          });
      if (!alive) throw;
    }
  }
  return survey_store(directories, Access::read);
}

namespace {

// What a live owner changes meanwhile looks like damage.
Survey survey_before_locking(const std::vector<std::string>& directories) {
  try {
    return survey_store(directories, Access::write);
  } catch (const CorruptData&) {
    SwapStore::require_free(directories);
    throw;
  }
}

}  // namespace

LockedStore lock_store(const std::vector<std::string>& directories) {
  LockedStore store{survey_before_locking(directories), {}};
  store.locks.resize(store.survey.paths.size());
  RefusedFolders refused;
  const auto lock_good_paths = [&] {
    bool all_were_locked = true;
    for (std::uint32_t p = 0; p < store.survey.paths.size(); ++p) {
      const SurveyedPath& path = store.survey.paths[p];
      if (path.state != State::good || store.locks[p]) continue;
      all_were_locked = false;
      try {
        store.locks[p].emplace(StoreLock::acquire(path.directory));
      } catch (const UnusableLock&) {  // it may be as good as ever, and cannot be used
        refused.emplace(path.directory, std::current_exception());
      }
    }
    return all_were_locked;
  };
  while (!lock_good_paths())  // a last owner may have ended before the lock was taken
    store.survey = survey_store(directories, Access::write, refused);
  return store;
}

}  // namespace headrace::swap
