#include "support/cuda_emulation/stream.h"

#include <fmt/format.h>

#include <vector>

#include "support/cuda_emulation/options.h"
#include "support/cuda_emulation/runtime.h"
#include "support/cuda_emulation/work_log.h"

namespace cuda_emulation {
namespace {

struct Log {
  std::mutex mutex;
  std::array<const char*, actor_count> last{};
  std::vector<Actor> free_actors;
  Moment host{.actor = host_actor, .at = 1, .before = {}, .name = "host code"};
  std::array<std::uint32_t, actor_count> reached{};  // clocks of actors that have gone
  Log() {
    host.before.time[host_actor] = 1;
    for (Actor a = actor_count - 1; a > host_actor; --a) free_actors.push_back(a);
  }
};

Log& log() {
  static Log* const one = new Log;
  return *one;
}

std::atomic<int> failure{0};
thread_local const char* work_of_this_thread = "host code";

}  // namespace

std::string actor_name(Actor actor) {
  return actor == host_actor ? "the host" : fmt::format("stream {}", actor);
}

std::string last_work_of(Actor actor) {
  if (actor == host_actor) return "the host";
  const std::lock_guard lock(log().mutex);
  return fmt::format("stream {} (its last work: \"{}\")", actor,
                     log().last[actor] == nullptr ? "none" : log().last[actor]);
}

void note_work(Actor actor, const char* name) {
  const std::lock_guard lock(log().mutex);
  log().last[actor] = name;
}

const char* running_work() {
  return work_of_this_thread;
}
void set_running_work(const char* name) {
  work_of_this_thread = name;
}
const Moment& host_moment() {
  return log().host;
}

void host_has_seen(const Completion& completion) {
  log().host.before.join(completion.clock);
}

bool device_has_failed() {
  return failure.load() != 0;
}
void fail_device(int status) {
  int none = 0;
  failure.compare_exchange_strong(none, status);
}
int device_failure() {
  return failure.load();
}

void Completion::finish() {
  {
    const std::lock_guard lock(mutex_);
    when = std::chrono::steady_clock::now();
    done = true;
  }
  changed_.notify_all();
}

void Completion::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done.load(); });
}

Stream::Stream() {
  Log& all = log();
  if (all.free_actors.empty()) violation(fmt::format("more than {} streams at once", actor_count - 1));
  moment_.actor = all.free_actors.back();
  all.free_actors.pop_back();
  moment_.at = all.reached[moment_.actor];
  moment_.before = all.host.before;
  random_.seed(static_cast<unsigned>(options().delay_seed * actor_count + moment_.actor + 1));
  thread_ = std::thread([this] { run(); });
}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
  Log& all = log();
  all.host.before.join(moment_.before);
  all.reached[moment_.actor] = moment_.at;
  all.free_actors.push_back(moment_.actor);
}

void Stream::enqueue(const char* name, std::function<void()> work) {
  // After all that the host has done or seen; what the host does next is not ordered with it.
  Moment& host = log().host;
  moment_.before.join(host.before);
  moment_.before.time[moment_.actor] = ++moment_.at;
  moment_.name = name;
  host.before.time[host_actor] = ++host.at;
  push({moment_, std::move(work), nullptr, Item::Kind::work});
}

std::shared_ptr<Completion> Stream::record() {
  auto completion = std::make_shared<Completion>();
  completion->clock = moment_.before;
  push({moment_, {}, completion, Item::Kind::finish});
  return completion;
}

void Stream::wait(std::shared_ptr<Completion> completion) {
  moment_.before.join(completion->clock);
  push({moment_, {}, std::move(completion), Item::Kind::await});
}

void Stream::push(Item item) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
  }
  changed_.notify_one();
}

void Stream::run() {
  for (;;) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    execute(item);
  }
}

void Stream::execute(Item& item) {
  if (item.kind == Item::Kind::finish) return item.completion->finish();
  if (item.kind == Item::Kind::await) return item.completion->wait();
  hold_back();
  if (device_has_failed()) return;
  set_running_work(item.moment.name);
  note_work(item.moment.actor, item.moment.name);
  running_accesses = &accesses_;
  item.work();
  running_accesses = nullptr;
  accesses_.finish(item.moment);
}

void Stream::hold_back() {
  if (options().delay_seed == 0) return;
  std::uniform_real_distribution<double> delay(0, options().largest_delay_seconds);
  std::this_thread::sleep_for(std::chrono::duration<double>(delay(random_)));
}

}  // namespace cuda_emulation
