// Where direct files end. Whole blocks alone can be written: a write that ends within the block at the end of
// a file leaves it too long. The file is cut off when none of the engine's transfers on it is in flight any
// more, and what is submitted meanwhile starts after that: the cut waits, in the kernel, for the file's
// direct I/O, which may need the thread that cuts, and it must not meet a write beyond.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "aio/job.h"
#include "headrace/io_engine.h"

namespace headrace::aio {

// Thread-safe.
class FileEnds {
 public:
  using Start = std::function<void()>;

  // Calls `start` for a transfer on the file: at once, or a copy of it after a cut on the thread that cut.
  // Throws std::bad_alloc, and nothing has happened.
  template <class Callable>
  void enter(IoFile::Id file, const Callable& start) {
    if (enter_or_hold(file, [&] { return Start(start); })) start();
  }
  // The job, which has entered, has made the file end at `block_end`, the end of a block, where `right_end`
  // would be right. Returns an errno value.
  int overrun(Job& job, int fd, std::uint64_t block_end, std::uint64_t right_end);
  // All parts of the job, which has entered, have ended. Announces it, now or after the cut that it needs.
  void leave(Job& job);

 private:
  using Key = std::tuple<std::uint64_t, std::uint64_t>;
  struct File {
    std::size_t running = 0;
    // Of the cut that is due, and of those that wait for it.
    bool cut_due = false;
    int fd = -1;
    std::uint64_t block_end = 0, right_end = 0;
    std::size_t overruns = 0;
    std::vector<Job*> overran;  // and have ended
    std::vector<Start> held;
  };
  using Files = std::map<Key, File>;
  // Memory for a copy of the start is asked for where it has to be held, which is seldom.
  template <class Copy>
  bool enter_or_hold(IoFile::Id file, Copy copy) {
    const std::lock_guard lock(mutex_);
    File& entered = files_[key(file)];
    if (entered.cut_due)
      entered.held.push_back(copy());
    else
      ++entered.running;
    return !entered.cut_due;
  }
  static Key key(IoFile::Id file) { return {file.device, file.inode}; }
  static int cut(const File& file);
  void cut_and_go_on(Job& last, Files::iterator place, std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  Files files_;  // with transfers in flight
};

}  // namespace headrace::aio
