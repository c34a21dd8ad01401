// A folder that is complete or not there: made as NAME.partial, renamed when all is in it and flushed.
#pragma once

#include <string>

#include "headrace/owned.h"

namespace headrace {

class PartialFolder {
 public:
  using IsOwn = bool (*)(const std::string& name);
  // `folder` must not exist or be empty, and the folder above it must exist (UsageError). What an interrupted
  // export left in NAME.partial is removed; UsageError where another one is writing there, or where a file is
  // none of its own. The first is of exports of models.
  explicit PartialFolder(const std::string& folder);
  PartialFolder(const std::string& folder, IsOwn is_own);
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder();  // unless published, all of it is removed

  const std::string& path() const { return partial_; }
  void publish();

 private:
  void claim();

  std::string folder_, partial_;
  IsOwn is_own_;
  Fd lock_;  // held while it is written
  bool published_ = false;
};

}  // namespace headrace
