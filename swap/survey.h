// What the folders of a store hold, from their small files only: which path is which, which of them are
// whole, and which commits the store has ([Note: one commit in several journals] in format.h).
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "swap/description.h"
#include "swap/format.h"
#include "swap/lock.h"
#include "swap/pins.h"
#include "swap/stripe_map.h"

namespace headrace::swap {

struct SurveyedPath {
  std::string directory;  // as given; for a path that no given folder holds, one that holds no path
  SwapPath::State state = SwapPath::State::missing;
  std::string problem;  // empty when good
  int code = 0;         // the errno value of the call that failed, if that is the problem
  bool owns_directory = false;
  std::vector<std::string> known_directories;  // of all paths, as its own description has them
  std::optional<JournalContents> journal;      // of a good path, with durability step
  FolderPins pins;                             // of a good path
};

struct Survey {
  Description description;  // of the store, directories as last written; path and owns_directory mean nothing
  StripeMap map;
  std::vector<SurveyedPath> paths;  // by number
  PathsState state;                 // the paths that are not good are lost in it; the epoch is the stored one
  PathsState stored_state;
  CommitHistory history;
  Pins pins;                           // oldest first
  std::vector<BrokenPin> broken_pins;  // that no path has whole

  std::uint32_t lost_count() const;
  // Whether no other set of paths can have gone on without these ([Note: one commit in several journals]).
  bool is_sure_to_be_newest() const;
};

enum class Access : std::uint8_t { read, write };
// Why folders whose contents may be good cannot be used all the same.
using RefusedFolders = std::map<std::string, std::exception_ptr>;
// With parity a path that cannot be written is damaged for who wants to. Throws when there is no store, or
// more paths than parity makes up for are not good: the error of the one path, or one that names them all.
Survey survey_store(const std::vector<std::string>& directories, Access access,
                    const RefusedFolders& refused = {});
// The store that most of the folders belong to, when in doubt one of as many paths, then the first one; and
// which folder is which of its paths. Throws what the first folder's description throws where there is none.
struct CommonStore {
  Description description;
  std::map<std::string, std::uint32_t> number_of;
};
CommonStore find_common_store(const std::vector<std::string>& directories);
// For reading, beside a live owner: what it replaces at that moment is looked at again.
Survey survey_live_store(const std::vector<std::string>& directories);

// The survey of a store that nobody else changes any more: its good paths are locked, by number. UsageError
// when a live process owns one; a path that cannot be locked for another reason is damaged. No lock is left
// where there is no store.
struct LockedStore {
  Survey survey;
  std::vector<std::optional<StoreLock>> locks;
};
LockedStore lock_store(const std::vector<std::string>& directories);

// The history that the journals of the good paths agree on.
CommitHistory agreed_history(const std::vector<const JournalContents*>& journals);

}  // namespace headrace::swap
