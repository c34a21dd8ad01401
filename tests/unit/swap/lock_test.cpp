// Who may own a folder, through the deaths and forks of processes.
#include "swap/lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "tests/unit/swap/store_fixture.h"

namespace headrace::swap {
namespace {

using headrace::testing::message_of;
using headrace::testing::TemporaryFolder;
using ::testing::HasSubstr;

// A child that runs `body`, says so, and then waits to be killed.
class WaitingChild {
 public:
  explicit WaitingChild(const std::function<void()>& body) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    pid_ = ::fork();
    if (pid_ == 0) {
      body();
      (void)!::write(ends[1], "x", 1);
      for (;;) ::pause();
    }
    ::close(ends[1]);
    char ready = 0;
    (void)!::read(ends[0], &ready, 1);
    ::close(ends[0]);
  }
  WaitingChild(const WaitingChild&) = delete;
  WaitingChild& operator=(const WaitingChild&) = delete;
  ~WaitingChild() { kill(); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

// Runs `body` in a child; its result is the exit status.
int in_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(StoreLock, a_second_owner_in_the_same_process_is_refused_with_pid_and_host) {
  const TemporaryFolder folder;
  const StoreLock lock = StoreLock::acquire(folder.path());
  const std::string message = message_of<UsageError>([&] { StoreLock::acquire(folder.path()); });
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  EXPECT_THAT(message, HasSubstr("process " + std::to_string(::getpid())));
  EXPECT_THAT(message, HasSubstr(host.data()));
  EXPECT_THAT(message, HasSubstr(folder.path()));
}

TEST(StoreLock, a_live_owner_in_another_process_is_refused_and_reported_alive) {
  const TemporaryFolder folder;
  std::optional<StoreLock> kept;
  WaitingChild child([&] { kept.emplace(StoreLock::acquire(folder.path())); });
  EXPECT_THAT(message_of<UsageError>([&] { StoreLock::acquire(folder.path()); }),
              HasSubstr("process " + std::to_string(child.pid())));
  EXPECT_EQ(read_owner(folder.path()).state, SwapOwner::State::alive);
}

TEST(StoreLock, a_killed_owner_is_reported_dead_and_its_lock_taken_over) {
  const TemporaryFolder folder;
  std::optional<StoreLock> kept;
  WaitingChild child([&] { kept.emplace(StoreLock::acquire(folder.path())); });
  const auto pid = static_cast<std::uint64_t>(child.pid());
  child.kill();
  EXPECT_EQ(read_owner(folder.path()).state, SwapOwner::State::dead);
  const StoreLock lock = StoreLock::acquire(folder.path());
  EXPECT_EQ(lock.previous_owner().state, SwapOwner::State::dead);
  EXPECT_EQ(lock.previous_owner().pid, pid);
}

TEST(StoreLock, a_clean_close_leaves_no_owner) {
  const TemporaryFolder folder;
  { const StoreLock lock = StoreLock::acquire(folder.path()); }
  EXPECT_EQ(read_owner(folder.path()).state, SwapOwner::State::none);
  EXPECT_EQ(StoreLock::acquire(folder.path()).previous_owner().state, SwapOwner::State::none);
}

TEST(StoreLock, a_forked_child_that_ends_or_destroys_its_copy_releases_nothing) {
  const TemporaryFolder folder;
  auto lock = std::make_unique<StoreLock>(StoreLock::acquire(folder.path()));
  EXPECT_EQ(in_child([] { return 0; }), 0);
  EXPECT_EQ(in_child([&] {
              lock.reset();
              return 0;
            }),
            0);
  EXPECT_EQ(read_owner(folder.path()).state, SwapOwner::State::alive);
  EXPECT_EQ(in_child([&] {
              try {
                StoreLock::acquire(folder.path());
                return 1;
              } catch (const UsageError&) {
                return 0;
              }
            }),
            0);
}

TEST(StoreLock, a_closed_lock_is_free_even_while_a_forked_child_lives_on) {
  const TemporaryFolder folder;
  auto lock = std::make_unique<StoreLock>(StoreLock::acquire(folder.path()));
  const WaitingChild child([] {});
  lock.reset();
  const StoreLock again = StoreLock::acquire(folder.path());
  EXPECT_EQ(again.previous_owner().state, SwapOwner::State::none);
  EXPECT_TRUE(again.owned_by_this_process());
}

TEST(StoreLock, a_lock_that_only_a_child_of_the_dead_owner_holds_is_stale) {
  const TemporaryFolder folder;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const int status = in_child([&] {  // the owner: leaves a child behind
    StoreLock lock = StoreLock::acquire(folder.path());
    const pid_t orphan = ::fork();
    if (orphan == 0)
      for (;;) ::pause();
    (void)!::write(ends[1], &orphan, sizeof(orphan));
    ::_exit(0);
    return 0;
  });
  EXPECT_EQ(status, 0);
  pid_t orphan = 0;
  ASSERT_EQ(::read(ends[0], &orphan, sizeof(orphan)), static_cast<ssize_t>(sizeof(orphan)));
  {
    const StoreLock lock = StoreLock::acquire(folder.path());
    EXPECT_EQ(lock.previous_owner().state, SwapOwner::State::dead);
  }
  ::kill(orphan, SIGKILL);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(StoreLock, a_reused_process_id_is_not_taken_for_the_owner) {
  const TemporaryFolder folder;
  { const StoreLock lock = StoreLock::acquire(folder.path()); }
  std::string boot, link(128, '\0');
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  link.resize(static_cast<std::size_t>(::readlink("/proc/self/ns/pid", link.data(), link.size())));
  const auto claim = [&](const std::string& boot_id, const std::string& name_space) {
    std::ofstream(folder.path("lock")) << "pid " << ::getpid() << "\nstart 1\nboot " << boot_id
                                       << "\nnamespace " << name_space << "\nhost elsewhere\n";
    return read_owner(folder.path()).state;
  };
  EXPECT_EQ(claim(boot, link), SwapOwner::State::dead);
  EXPECT_EQ(claim(boot, "pid:[1]"), SwapOwner::State::unknown);
  EXPECT_EQ(claim("another-boot", link), SwapOwner::State::unknown);
}

}  // namespace
}  // namespace headrace::swap
