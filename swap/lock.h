// Who owns a store. The lock is flock(2) on the file `lock`; its text says who to blame, and lets others see
// whether the owner still lives without touching the lock.
//
// A process forked from the owner shares the flock, so the text names the owner exactly: process id, its
// start time (ids are reused), boot id and pid namespace. A lock that only such a child still holds is stale.
// Only the owner itself releases.
#pragma once

#include <sys/types.h>

#include <string>

#include "headrace/errors.h"
#include "headrace/owned.h"
#include "headrace/swap_store.h"

namespace headrace::swap {

// The lock file cannot be opened, read or written, for no shortage: nobody can own the folder.
class UnusableLock : public UsageError {
 public:
  using UsageError::UsageError;
};

class StoreLock {
 public:
  // Throws UsageError naming the live owner, UnusableLock, or IoError (a full disk, for one).
  static StoreLock acquire(const std::string& directory);
  StoreLock(StoreLock&& other) noexcept = default;
  StoreLock& operator=(StoreLock&&) = delete;
  ~StoreLock();

  const SwapOwner& previous_owner() const { return previous_; }
  // False in a child made by fork: it must leave files and lock alone.
  bool owned_by_this_process() const;
  int fd() const { return fd_.get(); }
  // The lock file goes with the store.
  void remove_file_on_release() { remove_ = true; }

 private:
  StoreLock(std::string path, Fd fd, SwapOwner previous);
  static StoreLock take(const std::string& directory);
  std::string path_;
  Fd fd_;
  SwapOwner previous_;
  pid_t owner_ = 0;
  bool remove_ = false;
};

// An owner of state unknown where the lock cannot be read: acquire() finds out.
SwapOwner read_owner(const std::string& directory);
[[noreturn]] void refuse_owner(const std::string& directory, const SwapOwner& owner);

}  // namespace headrace::swap
