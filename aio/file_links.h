// What engines keep for an open file (a place in a ring's table of files), found again by the engine's part
// that made it. It ends with the IoFile, before the descriptor is closed: no engine keeps a closed file
// alive.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "headrace/io_engine.h"

namespace headrace {

class IoFile::Links {
 public:
  class Link {
   public:
    virtual ~Link() = default;
    virtual bool stale() const = 0;  // who made it is gone
  };

  // The link of `maker`, which make() makes at first, or does not (null). Thread-safe.
  template <class Make>
  std::shared_ptr<Link> find_or_make(std::uint64_t maker, Make make) {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_)
      if (entry.maker == maker) return entry.link;
    std::erase_if(entries_, [](const Entry& entry) { return entry.link->stale(); });
    std::shared_ptr<Link> made = make();
    if (made) entries_.push_back({maker, made});
    return made;
  }

 private:
  struct Entry {
    std::uint64_t maker;
    std::shared_ptr<Link> link;
  };
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace headrace
