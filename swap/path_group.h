// The paths of an open store: their files, journals and locks, which of them are lost, and what is done on
// all that are left. With parity a failing path is lost, noted on the others and told once; so is one on
// which many damaged pieces were met (path_damage.h). Without parity, or with more lost than it makes up for,
// the failure is an IoError.
//
// Threads: any may ask what is lost, and in a store without journals any may report a failure (survives); the
// rest is the owner thread's.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/io_engine.h"
#include "swap/format.h"
#include "swap/journal.h"
#include "swap/lock.h"
#include "swap/path_damage.h"
#include "swap/pins.h"
#include "swap/stripe_map.h"

namespace headrace::swap {

// A failure of the device or the file system under a path, as opposed to a full disk, to a shortage of memory
// or to a mistake of ours.
bool is_path_failure(int code);

struct StorePath {
  std::string directory;
  bool owns_directory = false;
  std::optional<IoFile> extents;    // absent where it is lost
  std::optional<Journal> journal;   // absent too with durability none, and when opened read-only
  std::optional<StoreLock> lock{};  // absent when opened read-only
  std::string lost{};               // why the store goes on without it; empty: it is there
  int lost_code = 0;                // the errno value of a call that failed, if that was why
};

class PathGroup {
 public:
  PathGroup(std::vector<StorePath> paths, const StripeShape& shape, const PathsState& state);

  std::uint32_t size() const { return static_cast<std::uint32_t>(paths_.size()); }
  const std::string& directory(std::uint32_t path) const { return paths_[path].directory; }
  const IoFile& extents(std::uint32_t path) const { return *paths_[path].extents; }
  std::string extents_path(std::uint32_t path) const;
  bool is_lost(std::uint32_t path) const { return (lost_.load(std::memory_order_acquire) >> path & 1) != 0; }
  std::uint32_t lost_count() const { return static_cast<std::uint32_t>(std::popcount(lost_.load())); }
  std::vector<std::string> lost_directories() const;
  std::vector<std::string> directories() const;

  // Whether the store goes on without this path after the failure `code` of `what`; the path is lost then, if
  // it was not before.
  bool survives(std::uint32_t path, int code, std::string_view what);
  // A damaged piece that parity rebuilt, described by `what`. The first of a path is told, the others are
  // counted for tell_damage(), which close() does.
  void note_damage(const ExtentEntry& piece, std::string_view what);
  void tell_damage() const;
  bool too_many_lost() const { return lost_count() > parity_; }
  [[noreturn]] void throw_too_many_lost() const;

  bool owned_by_this_process() const;  // all locks are held, by this process
  void check_usable() const;
  // After open: all that are left agree on which paths are lost, and the newest commit is in every journal,
  // also in those of the paths that are `behind`, and the pins in every folder.
  void settle(const CommitHistory& history, const std::vector<std::uint32_t>& behind, const Pins& pins);
  // A path whose files are gone, cannot be looked at, or are no longer those at its names, is lost. Where the
  // store cannot do without it, an error says what is not done.
  void check_present(std::string_view not_done = "this step is not committed");
  void flush_extents();
  void append_commit(const CommitRecord& record, const CommitHistory& history);
  void append_release(const CommitRecord& newest);
  void drop_newest(const CommitRecord& remaining);
  void write_pin(const Pin& pin);
  void remove_pin(const std::string& name);
  // Gives up files, journals and locks; the extents stay open for transfers in flight.
  void close(bool remove_files);

 private:
  using Action = std::function<void(StorePath&)>;
  void on_each_path(std::string_view what, const Action& action);
  void settle_folder(StorePath& path, const std::function<void()>& change);
  void check_present(std::uint32_t path, const std::string& file, int fd, std::string_view not_done);
  void take_back(std::uint32_t count, const CommitHistory& history);
  bool survives_because(std::uint32_t path, int code, std::string why);
  void go_on_without(std::uint32_t path, std::string why, int code);
  void lose(std::uint32_t path, std::string why, int code);
  void tell_lost(std::uint32_t path) const;
  void note_lost_paths();
  std::string how_to_bring_back() const;

  std::vector<StorePath> paths_;
  const std::uint32_t parity_;
  const bool keeps_steps_, keeps_pins_;
  PathsState state_;
  std::recursive_mutex losing_;          // noting a loss may meet another
  PathDamage damage_;                    // under losing_
  std::atomic<std::uint64_t> lost_ = 0;  // bit p: paths_[p].lost is set, and stays as it is
};

void remove_store_files(const std::string& directory);  // all but the lock

}  // namespace headrace::swap
