#include "aio/queued_engine.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <new>
#include <numeric>

#include "aio/fork_count.h"
#include "aio/transfer_parts.h"
#include "headrace/errors.h"
#include "headrace/io_batch.h"
#include "headrace/log.h"

namespace headrace::aio {
namespace {

constexpr std::uint32_t max_queue_depth = 4096;

void check_options(const IoEngineOptions& options) {
  if (options.queue_depth > max_queue_depth)
    throw UsageError(
        fmt::format("An I/O queue depth of {} is not possible: choose 1 to {}, or 0 to let the "
                    "device decide.",
                    options.queue_depth, max_queue_depth));
}

void check_transfer(const IoFile& file, std::uint64_t offset, const HostLease& buffer, Bytes bytes) {
  HEADRACE_CHECK(bytes <= buffer.memory().size(), "transfer of {} bytes with a buffer of {} bytes, {}", bytes,
                 buffer.memory().size(), file.path());
  constexpr auto last = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  HEADRACE_CHECK(bytes <= last && offset <= last - bytes, "offset {} with {} bytes is beyond any file, {}",
                 offset, bytes, file.path());
}

bool wants_polling(const IoEngineOptions& options, const IoFile& file) {
  return options.poll_completions && file.direct();
}

bool has_poll_queues(const IoFile& file, const std::optional<DeviceLimits>& limits) {
  if (limits && limits->poll_queues) return true;
  warn_once(
      "no poll queues " + std::to_string(file.id().device),
      fmt::format("the device of {} has no poll queues: its completions come by interrupt instead. NVMe "
                  "drives get some with the kernel parameter nvme.poll_queues=N.",
                  file.path()));
  return false;
}

std::vector<std::size_t> every_place(std::size_t count) {
  std::vector<std::size_t> places(count);
  std::iota(places.begin(), places.end(), 0);
  return places;
}

}  // namespace

class QueuedEngine::Ticket final : public IoTicket::State {
 public:
  Ticket(std::shared_ptr<Job> job, HostLease buffer, IoPath& path, QueuedEngine& engine)
      : job_(std::move(job)), buffer_(std::move(buffer)), path_(path), engine_(engine) {}

  IoResult wait() override {
    if (!job_->finished()) {
      if (engine_.in_forked_child()) return {.code = ECANCELED};
      count_wait([this] { path_.wait(*job_); });
    }
    return job_->result();
  }
  bool done() override {
    if (!job_->finished() && !engine_.in_forked_child()) path_.poll();
    return job_->finished();
  }
  HostLease take() override {
    (void)wait();
    return std::move(buffer_);
  }
  const void* queue() const override { return &path_; }
  std::vector<std::size_t> wait_for_any(std::span<State* const> among) override {
    std::vector<Job*> jobs;
    jobs.reserve(among.size());
    for (State* state : among) {
      if (state->queue() != &path_) return State::wait_for_any(among);
      jobs.push_back(static_cast<Ticket*>(state)->job_.get());
    }
    if (engine_.in_forked_child()) return every_place(jobs.size());  // wait() says so
    count_wait([&] { path_.wait_any(jobs); });
    std::vector<std::size_t> ended;
    for (std::size_t place = 0; place < jobs.size(); ++place)
      if (jobs[place]->finished()) ended.push_back(place);
    return ended;
  }

 private:
  template <class Wait>
  void count_wait(Wait wait) {
    const auto start = std::chrono::steady_clock::now();
    wait();
    engine_.wait_nanoseconds_ += (std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1);
  }

  std::shared_ptr<Job> job_;
  HostLease buffer_;
  IoPath& path_;
  QueuedEngine& engine_;
};

class QueuedEngine::Registration final : public IoRegistration::State {
 public:
  Registration(RegionId region, QueuedEngine& engine) : region_(region), engine_(engine) {}
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() override {
    if (!engine_.in_forked_child()) engine_.forget_region(region_);
  }

 private:
  const RegionId region_;
  QueuedEngine& engine_;
};

QueuedEngine::QueuedEngine(const IoEngineOptions& options, RequestHook hook)
    : options_(options), hook_(std::move(hook)), owner_(fork_count()) {
  check_options(options);
}

QueuedEngine::~QueuedEngine() {
  if (!in_forked_child()) return;
  for (auto& path : paths_) (void)path.release();
}

// What can fail comes before the ticket, which waits for all that it started.
IoTicket QueuedEngine::submit(IoDirection direction, const IoFile& file, std::uint64_t offset,
                              HostLease buffer, Bytes bytes) {
  HEADRACE_CHECK(!in_forked_child(), "an I/O engine used in a forked child, {}", file.path());
  check_transfer(file, offset, buffer, bytes);
  const Path& path = path_of(file);
  auto job =
      std::make_shared<Job>(direction, file.id(), offset, bytes, [this](Job& ended) { note_end(ended); });
  auto parts = std::make_shared<TransferParts>(job, file, offset, buffer.data(), path.shape.request_bytes,
                                               *path.io, static_cast<EdgeHost&>(*this));
  IoTicket ticket(std::make_unique<Ticket>(job, std::move(buffer), *path.io, *this));
  bounced_bytes_ += parts->bounced_bytes();
  if (bytes == 0)
    job->end_empty();
  else
    start(job, file, std::move(parts));
  return ticket;
}

void QueuedEngine::start(const std::shared_ptr<Job>& job, const IoFile& file,
                         std::shared_ptr<TransferParts> parts) {
  const bool may_keep_back = IoBatch::is_open(*this);
  if (!file.direct()) return parts->start(may_keep_back);
  job->tracked = true;
  try {
    file_ends_.enter(file.id(), [parts, may_keep_back] { parts->start(may_keep_back); });
  } catch (const std::bad_alloc&) {
    job->tracked = false;
    parts->fail(ENOMEM);
  }
}

const QueuedEngine::Path& QueuedEngine::path_of(const IoFile& file) {
  {
    const std::shared_lock lock(paths_mutex_);
    if (const Path* path = find_path(file)) return *path;
  }
  return open_path_and_register(file);
}

// The kernel takes its time over a large region, and only who ends a registration has to wait for that: other
// transfers use the path meanwhile.
const QueuedEngine::Path& QueuedEngine::open_path_and_register(const IoFile& file) {
  const std::lock_guard registering(registering_mutex_);
  const Path* path = nullptr;
  std::vector<Region> regions;
  {
    const std::lock_guard lock(paths_mutex_);
    path = find_path(file);
    if (path != nullptr) return *path;
    const std::size_t before = all_paths().size();
    path = &open_path(file);
    if (all_paths().size() > before) regions = regions_;
  }
  for (const Region& region : regions) path->io->add_region(region.id, region.memory);
  return *path;
}

const QueuedEngine::Path* QueuedEngine::find_path(const IoFile& file) const {
  for (const auto& path : paths_)
    if (path->device == file.id().device && path->asked_to_poll == wants_polling(options_, file))
      return path.get();
  return nullptr;
}

const QueuedEngine::Path& QueuedEngine::open_path(const IoFile& file) {
  const auto device = block_device_of(file.id().device);
  const auto limits = device ? limits_of(*device) : std::nullopt;
  const bool asked = wants_polling(options_, file);
  const IoShape shape = choose_shape(options_, limits);
  auto io = asked && has_poll_queues(file, limits) ? try_polled_path(shape, file) : nullptr;
  const bool polls = io != nullptr;
  if (!polls) io = make_path_or_share(shape);
  return *paths_.emplace_back(new Path{file.id().device, asked, polls, shape, std::move(io)});
}

std::shared_ptr<IoPath> QueuedEngine::try_polled_path(const IoShape& shape, const IoFile& file) {
  std::string refusal = "The file system cannot poll.";
  try {
    if (can_poll(file)) return make_path(shape, true);
  } catch (const Error& error) {
    refusal = error.what();
  }
  warn_once("no polling " + std::to_string(file.id().device),
            fmt::format("Completions on the device of {} come by interrupt instead of polling. {}",
                        file.path(), refusal));
  return nullptr;
}

// A refused path costs speed, not the run: another's takes its files too.
std::shared_ptr<IoPath> QueuedEngine::make_path_or_share(const IoShape& shape) {
  try {
    return make_path(shape, false);
  } catch (const Error& refusal) {
    const auto other = std::ranges::find(paths_, false, [](const auto& path) { return path->polls; });
    if (other == paths_.end()) throw;
    warn_once("shared path", fmt::format("{} Devices share one queue until then.", refusal.what()));
    return (*other)->io;
  }
}

std::vector<std::shared_ptr<IoPath>> QueuedEngine::all_paths() const {
  std::vector<std::shared_ptr<IoPath>> all;
  for (const auto& path : paths_)
    if (std::ranges::find(all, path->io) == all.end()) all.push_back(path->io);
  return all;
}

// The kernel takes its time over a large region: no lock is held that a submit needs. A path that opens
// meanwhile finds the region in the list.
IoRegistration QueuedEngine::register_memory(std::span<std::byte> memory) {
  HEADRACE_CHECK(!in_forked_child(), "an I/O engine used in a forked child");
  if (memory.empty()) return {};
  RegionId region = 0;
  std::vector<std::shared_ptr<IoPath>> paths;
  {
    const std::lock_guard lock(paths_mutex_);
    region = next_region_++;
    regions_.push_back({region, memory});
    paths = all_paths();
  }
  for (const auto& path : paths) path->add_region(region, memory);
  return IoRegistration(std::make_unique<Registration>(region, *this));
}

void QueuedEngine::forget_region(RegionId region) {
  std::vector<std::shared_ptr<IoPath>> paths;
  const std::lock_guard registering(registering_mutex_);
  {
    const std::lock_guard lock(paths_mutex_);
    std::erase_if(regions_, [&](const Region& known) { return known.id == region; });
    paths = all_paths();
  }
  for (const auto& path : paths) path->remove_region(region);
}

void QueuedEngine::issue_kept_back() {
  if (in_forked_child()) return;
  const std::shared_lock lock(paths_mutex_);
  for (const auto& path : paths_) path->io->issue_kept_back();
}

IoCounters QueuedEngine::counters() const {
  IoCounters counters{.read_bytes = read_bytes_.load(),
                      .written_bytes = written_bytes_.load(),
                      .wait_seconds = static_cast<double>(wait_nanoseconds_.load()) * 1e-9,
                      .bounced_bytes = bounced_bytes_.load()};
  const std::shared_lock lock(paths_mutex_);
  for (const auto& path : all_paths()) counters.registered_bytes += path->registered_bytes();
  return counters;
}

void QueuedEngine::note_end(Job& job) {
  const bool read = job.direction() == IoDirection::read;
  (read ? read_bytes_ : written_bytes_) += job.result().bytes;
  if (job.tracked)
    file_ends_.leave(job);
  else
    job.announce();
}

bool QueuedEngine::in_forked_child() const {
  return fork_count() != owner_;
}

}  // namespace headrace::aio
