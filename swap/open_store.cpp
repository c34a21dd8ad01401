// How a store is opened again, looked at and removed.
#include <fmt/ranges.h>

#include <algorithm>

#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/log.h"
#include "swap/advice.h"
#include "swap/survey.h"
#include "swap/versioned_store.h"

namespace headrace {
namespace swap {
using namespace files;

namespace {

void refuse_other_run(const SwapStoreOptions& options, const Description& store) {
  const std::string where = fmt::format("{}", fmt::join(options.directories, ", "));
  if (store.shape.durability != Durability::step)
    throw UsageError(
        fmt::format("the swap store in {} was written with durability \"none\" and cannot be resumed; "
                    "start without --resume swap.",
                    where));
  if (options.durability != Durability::step)
    throw UsageError(
        fmt::format("the swap store in {} has durability \"step\"; resume it with the same.", where));
  if (store.shape.parity != options.parity)
    throw UsageError(
        fmt::format("the swap store in {} has parity {}, and {} is given; resume it with the same.", where,
                    store.shape.parity, options.parity));
  if (store.layout != options.layout)
    throw UsageError(
        fmt::format("the swap store in {} is of another run: {}. Resume with the settings it was made "
                    "with, or start without --resume swap.",
                    where, layout_difference(store.layout, options.layout)));
}

std::vector<std::string> directories_of(const Survey& survey) {
  std::vector<std::string> all;
  for (const SurveyedPath& path : survey.paths) all.push_back(path.directory);
  return all;
}

// Half the paths may be the half that the run went on without.
void refuse_an_unsure_half(const Survey& survey) {
  if (survey.is_sure_to_be_newest()) return;
  std::vector<std::string> wanted, folders;
  for (std::uint32_t p = 0; p < survey.paths.size(); ++p) {
    if (survey.paths[p].state == SwapPath::State::good) continue;
    folders.push_back(survey.paths[p].directory);
    if (!survey.stored_state.is_lost(p))
      wanted.push_back(fmt::format("{} ({})", survey.description.directories[p], survey.paths[p].problem));
  }
  throw UsageError(fmt::format(
      "the run may have gone on without the swap paths that are here: bring back {}. If {} gone for good, "
      "`{}` continues from step {} of the others, with empty folders in the place of those.",
      fmt::join(wanted, " and "), wanted.size() == 1 ? "it is" : "they are",
      repair_command(folders, directories_of(survey)), survey.history.newest->commit.step));
}

void tell_unusable(const Survey& survey, std::uint32_t p, const std::string& problem) {
  const SurveyedPath& path = survey.paths[p];
  // What was found good fails now.
  const SwapPath::State state = path.state == SwapPath::State::good ? SwapPath::State::damaged : path.state;
  const SwapPath lost{.directory = path.directory, .state = state, .code = path.code};
  log_warning(fmt::format("the swap path {} cannot be used: {}. The run goes on by parity; after it: {}.",
                          path.directory, problem, how_to_bring_back({lost}, directories_of(survey))));
}

// Opens what the survey found good. With parity a path that cannot be opened is lost like the others.
std::vector<StorePath> open_paths(const Survey& survey, IoFile::Mode mode,
                                  std::vector<std::optional<StoreLock>> locks) {
  const StripeShape& shape = survey.description.shape;
  std::vector<StorePath> paths;
  for (std::uint32_t p = 0; p < survey.paths.size(); ++p) {
    const SurveyedPath& found = survey.paths[p];
    StorePath path{found.directory, found.owns_directory, {}, {}, {}, found.problem};
    if (found.state == SwapPath::State::good) {
      try {
        path.extents.emplace(open_extents(found.directory, shape, mode));
        if (mode == IoFile::Mode::read_write) {
          path.lock.emplace(std::move(*locks[p]));
          path.journal.emplace(
              Journal::open(found.directory, survey.description.journal_identity(p), *found.journal));
        }
      } catch (const IoError& error) {
        if (shape.parity == 0 || !is_path_failure(error.code()))
          rethrow_with_advice(std::current_exception(), shape.parity);
        path.lost = error.what();
        path.lost_code = error.code();
        if (mode == IoFile::Mode::read_write) tell_unusable(survey, p, path.lost);
      }
    }
    paths.push_back(std::move(path));
  }
  return paths;
}

std::shared_ptr<Stripes> make_stripes(Survey& survey, std::vector<StorePath> paths, IoEngine& engine,
                                      std::uint32_t parity_buffers, std::span<std::byte> parity_memory) {
  return std::make_shared<Stripes>(std::move(survey.description.blocks), std::move(survey.map),
                                   std::move(paths), survey.stored_state, engine, parity_buffers,
                                   parity_memory);
}

// The good paths whose journal lacks the newest commit.
std::vector<std::uint32_t> paths_behind(const Survey& survey) {
  std::vector<std::uint32_t> behind;
  for (std::uint32_t p = 0; p < survey.paths.size(); ++p) {
    const SurveyedPath& path = survey.paths[p];
    if (path.journal && (!path.journal->history.newest ||
                         path.journal->history.newest->sequence != survey.history.newest->sequence))
      behind.push_back(p);
  }
  return behind;
}

void tell_what_was_found(const Survey& survey) {
  const std::uint64_t step = survey.history.newest->commit.step;
  for (std::uint32_t p = 0; p < survey.paths.size(); ++p) {
    const SurveyedPath& path = survey.paths[p];
    if (path.state != SwapPath::State::good)
      tell_unusable(survey, p, path.problem);
    else if (path.journal->torn_bytes > 0)
      log_info(fmt::format("the last record of {} is incomplete ({} bytes): continuing from step {}",
                           join(path.directory, journal_name), path.journal->torn_bytes, step));
  }
  for (const BrokenPin& broken : survey.broken_pins)
    log_warning(
        fmt::format("the pinned version {} cannot be read and is given up: {}", broken.name, broken.problem));
}

std::vector<SwapPin> without_tables(const Pins& pins) {
  std::vector<SwapPin> named;
  for (const Pin& pin : pins) named.push_back({pin.name, pin.record.commit});
  return named;
}

}  // namespace
}  // namespace swap

std::unique_ptr<SwapStore> SwapStore::open(const SwapStoreOptions& options, IoEngine& engine) {
  using namespace swap;
  auto [survey, locks] = lock_store(options.directories);
  refuse_other_run(options, survey.description);
  if (!survey.history.newest)
    throw UsageError(
        fmt::format("the swap store in {} holds no committed step: its run ended before the first one. "
                    "Start without --resume swap.",
                    fmt::join(options.directories, ", ")));
  refuse_an_unsure_half(survey);
  const std::vector<std::uint32_t> behind = paths_behind(survey);
  const CommitHistory history = survey.history;
  tell_what_was_found(survey);
  auto stripes = make_stripes(survey, open_paths(survey, IoFile::Mode::read_write, std::move(locks)), engine,
                              options.parity_buffers, options.parity_memory);
  stripes->group.settle(history, behind, survey.pins);
  return std::make_unique<VersionedStore>(StoreParts{.durability = Durability::step,
                                                     .layout = std::move(survey.description.layout),
                                                     .history = history,
                                                     .pins = std::move(survey.pins),
                                                     .stripes = std::move(stripes)});
}

std::unique_ptr<SwapStore> SwapStore::open_read_only(const Directories& directories, IoEngine& engine) {
  using namespace swap;
  Survey survey = survey_live_store(directories);
  auto stripes = make_stripes(survey, open_paths(survey, IoFile::Mode::read_only, {}), engine, 1, {});
  return std::make_unique<VersionedStore>(StoreParts{.durability = survey.description.shape.durability,
                                                     .layout = std::move(survey.description.layout),
                                                     .read_only = true,
                                                     .history = std::move(survey.history),
                                                     .pins = std::move(survey.pins),
                                                     .stripes = std::move(stripes)});
}

SwapDescription SwapStore::describe(const Directories& directories) {
  using namespace swap;
  Survey survey = survey_live_store(directories);
  SwapDescription result;
  for (auto* record : {&survey.history.superseded, &survey.history.newest})
    if (*record) result.commits.push_back(std::move((*record)->commit));
  for (std::uint32_t p = 0; p < survey.paths.size(); ++p) {
    SurveyedPath& path = survey.paths[p];
    const Bytes bytes = survey.map.file_bytes(p);
    result.extents_bytes += bytes;
    for (const char* name : {extents_name, journal_name, description_name})
      result.disk_bytes += bytes_on_disk(join(path.directory, name));
    for (const std::string& file : pin_files(path.directory))
      result.disk_bytes += bytes_on_disk(join(path.directory, file));
    SwapOwner owner = read_owner(path.directory);
    if (result.owner.state != SwapOwner::State::alive && owner.state != SwapOwner::State::none)
      result.owner = owner;
    result.paths.push_back({.directory = std::move(path.directory),
                            .state = path.state,
                            .problem = std::move(path.problem),
                            .code = path.code,
                            .extents_bytes = bytes,
                            .owner = std::move(owner)});
  }
  result.pins = without_tables(survey.pins);
  result.most_pins = survey.description.shape.pins;
  result.durability = survey.description.shape.durability;
  result.parity = survey.description.shape.parity;
  result.layout_identity = layout_identity(survey.description.layout);
  result.layout = std::move(survey.description.layout);
  result.blocks = std::move(survey.description.blocks);
  result.extent_alignment = survey.description.shape.alignment;
  return result;
}

SwapStore::Directories SwapStore::directories_of(const std::string& directory) {
  return directories_of(Directories{directory});
}

SwapStore::Directories SwapStore::directories_of(const Directories& some) {
  const auto [own, number_of] = swap::find_common_store(some);
  swap::Description newest = own;
  for (const std::string& other : own.directories) {  // a repair may have been interrupted before it told us
    try {
      swap::Description told = swap::read_description(other);
      if (told.store_id == own.store_id && told.directories_revision > newest.directories_revision)
        newest = std::move(told);
    } catch (const Error&) {  // lost
    }
  }
  for (const auto& [directory, path] : number_of) newest.directories[path] = directory;
  return newest.directories;
}

std::uint64_t SwapStore::id_of(const std::string& directory) {
  return swap::read_description(directory).store_id;
}

void SwapStore::require_free(const Directories& directories) {
  for (const std::string& directory : directories)
    if (const SwapOwner owner = swap::read_owner(directory); owner.state == SwapOwner::State::alive)
      swap::refuse_owner(directory, owner);
}

void SwapStore::remove(const Directories& directories) {
  for (const std::string& directory : directories) {
    if (!swap::folder_exists(directory)) continue;
    const bool owns_folder = swap::made_by_stale_store(directory);
    {
      swap::StoreLock lock = swap::StoreLock::acquire(directory);
      swap::remove_store_files(directory);
      lock.remove_file_on_release();
    }
    if (owns_folder) swap::remove_folder(directory);  // stays when something else is in it
  }
}

}  // namespace headrace
