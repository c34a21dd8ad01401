// The pinned versions of this rank's swap store that are checkpoints of a folder. Their names say which
// folder's they are, so that one without a checkpoint, as a kill leaves it, can be told from those of other
// folders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/communicator.h"
#include "headrace/swap_store.h"
#include "src/checkpoint/manifest.h"

namespace headrace {

// The store's owner thread. All but give_up() are collectives, and throw on every rank what one fails with.
class CheckpointPins {
 public:
  CheckpointPins(SwapStore& store, std::vector<std::string> store_directories, std::string directory,
                 Communicator& communicator, Device& device);

  // Keeps the newest commit, that of `step`, for a checkpoint that has still to be published.
  struct Pinned {
    std::string name;                   // that no other has
    std::vector<ManifestStore> stores;  // by rank
  };
  Pinned pin(std::uint64_t step);
  // One that will not be published. What fails is done by a later release().
  void give_up(const std::string& name) noexcept;

  // What the checkpoints in the folder name, those of any store, as any rank sees it.
  struct Named {
    std::vector<std::string> names;
    std::vector<std::string> unread;  // of those that cannot be read, and may name others: why
    std::uint64_t checkpoints = 0;
  };
  Named named();
  // Unpins what no checkpoint in the folder names and is either of the folder or among `named_before`, but
  // for what was `published` just now: what it unpinned here. The folder is flushed first: no checkpoint
  // comes back whose states are gone. While one cannot be read all stay, with a warning.
  std::vector<std::string> release(const std::vector<std::string>& named_before,
                                   const std::string& published);
  // At the start of a run: what a save that was killed has left. UsageError where the folder has no
  // checkpoint and the store pins of several, as when it is not mounted.
  void release_left_over();

 private:
  ManifestStore own_store() const;
  std::vector<ManifestStore> gather_stores();
  std::vector<std::string> release_all_but(const Named& still, const std::vector<std::string>& named_before,
                                           const std::string& published);

  SwapStore& store_;
  std::vector<std::string> store_directories_;
  std::string directory_, mark_;
  Communicator& communicator_;
  Device& device_;
};

}  // namespace headrace
