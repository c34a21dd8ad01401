#include "aio/file_ends.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace headrace::aio {

int FileEnds::overrun(Job& job, int fd, std::uint64_t block_end, std::uint64_t right_end) {
  const std::lock_guard lock(mutex_);
  File& file = files_.find(key(job.file()))->second;
  try {
    file.overran.reserve(file.overruns + 1);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  ++file.overruns;
  job.overran = true;
  file.cut_due = true;
  file.fd = fd;
  file.block_end = std::max(file.block_end, block_end);
  file.right_end = std::max(file.right_end, right_end);
  return 0;
}

// Writes into the same block that came later found it whole: only here is it seen how far they went.
void FileEnds::leave(Job& job) {
  std::unique_lock lock(mutex_);
  const auto place = files_.find(key(job.file()));
  File& file = place->second;
  const Bytes good = job.result().bytes;
  if (job.direction() == IoDirection::write && good > 0)
    file.right_end = std::max(file.right_end, job.offset() + good);
  if (job.overran) file.overran.push_back(&job);
  if (--file.running == 0 && file.cut_due) return cut_and_go_on(job, place, lock);
  if (file.running == 0) files_.erase(place);
  const bool waits = job.overran;
  lock.unlock();
  if (!waits) job.announce();
}

// Whoever waits for the cut keeps the engine alive: they are told last.
void FileEnds::cut_and_go_on(Job& last, Files::iterator place, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  const int code = cut(place->second);
  lock.lock();
  File done = std::exchange(place->second, {});
  place->second.running = done.held.size();
  if (done.held.empty()) files_.erase(place);
  lock.unlock();
  for (const Start& start : done.held) start();
  const bool last_waited = last.overran;
  for (Job* job : done.overran) {
    if (code != 0) job->fail(code);
    job->announce();
  }
  if (!last_waited) last.announce();
}

// A file of another end has been written or cut by someone else since.
int FileEnds::cut(const File& file) {
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) return errno;
  if (file.right_end >= file.block_end || static_cast<std::uint64_t>(status.st_size) != file.block_end)
    return 0;
  return ::ftruncate(file.fd, static_cast<off_t>(file.right_end)) == 0 ? 0 : errno;
}

}  // namespace headrace::aio
