#include "swap/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <optional>
#include <string_view>

#include "headrace/errors.h"
#include "headrace/files.h"
#include "swap/format.h"

namespace headrace::swap {
using namespace files;
namespace {

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Files of /proc report a size of 0, so they are read until they end.
std::string read_proc(const char* path) {
  const Fd fd{::open(path, O_RDONLY | O_CLOEXEC)};
  std::array<char, 1024> buffer;
  const ssize_t got = fd ? ::read(fd.get(), buffer.data(), buffer.size()) : 0;
  std::string text(buffer.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string boot_id() {
  return read_proc("/proc/sys/kernel/random/boot_id");
}

std::string pid_namespace() {
  std::array<char, 128> buffer;
  const ssize_t got = ::readlink("/proc/self/ns/pid", buffer.data(), buffer.size());
  return {buffer.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

std::string host_name() {
  std::array<char, 256> buffer{};
  ::gethostname(buffer.data(), buffer.size() - 1);
  return buffer.data();
}

// Field 22 of /proc/PID/stat, counted after the command name, which may hold spaces and parentheses. 0: no
// such process.
std::uint64_t start_time(std::uint64_t pid) {
  const std::string stat = read_proc(fmt::format("/proc/{}/stat", pid).c_str());
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::string_view rest = std::string_view(stat).substr(name_end + 1);
  for (int field = 3; field <= 22; ++field) {
    const std::size_t begin = rest.find_first_not_of(' ');
    if (begin == std::string_view::npos) return 0;
    rest.remove_prefix(begin);
    if (field == 22) break;
    if (field == 3 && (rest.front() == 'Z' || rest.front() == 'X')) return 0;  // dead, not yet waited for
    rest.remove_prefix(std::min(rest.find(' '), rest.size()));
  }
  std::uint64_t ticks = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), ticks);
  return ticks;
}

std::string own_text() {
  const auto pid = static_cast<std::uint64_t>(::getpid());
  return fmt::format("pid {}\nstart {}\nboot {}\nnamespace {}\nhost {}\n", pid, start_time(pid), boot_id(),
                     pid_namespace(), host_name());
}

std::string_view value_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == ' ')
      return line.substr(key.size() + 1);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return {};
}

std::uint64_t number_of(std::string_view text, std::string_view key) {
  const std::string_view digits = value_of(text, key);
  std::uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

SwapOwner parse_owner(std::string_view text) {
  SwapOwner owner;
  owner.pid = number_of(text, "pid");
  owner.host = value_of(text, "host");
  if (owner.pid == 0) return owner;
  if (value_of(text, "boot") != boot_id())
    owner.state = owner.host == host_name() ? SwapOwner::State::dead : SwapOwner::State::unknown;
  else if (value_of(text, "namespace") != pid_namespace())
    owner.state = SwapOwner::State::unknown;
  else
    owner.state =
        start_time(owner.pid) == number_of(text, "start") ? SwapOwner::State::alive : SwapOwner::State::dead;
  return owner;
}

// Taking the lock and replacing a stale one are one step for everybody who does so under this guard.
class FolderGuard {
 public:
  explicit FolderGuard(const std::string& directory) : fd_(open_file(directory, O_RDONLY | O_DIRECTORY)) {
    while (::flock(fd_.get(), LOCK_EX) != 0)
      if (errno != EINTR) throw IoError("lock", directory, 0, 0, errno);
  }

 private:
  Fd fd_;
};

// What is short now says nothing of the folder.
bool is_shortage(int code) {
  return code == ENOSPC || code == EDQUOT || code == EFBIG || code == EMFILE || code == ENFILE ||
         code == ENOMEM || code == ENOLCK || code == EINTR || code == EAGAIN;
}

[[noreturn]] void refuse_lock(const std::string& directory, std::string_view why) {
  throw UnusableLock(fmt::format(
      "the swap folder {} cannot be locked: {}. Make {} a file that this user can write to (check "
      "permissions and drive), or choose another --swap-path.",
      directory, why, join(directory, lock_name)));
}

}  // namespace

SwapOwner read_owner(const std::string& directory) {
  const std::string path = join(directory, lock_name);
  if (!file_exists(path)) return {};
  try {
    return parse_owner(text_of(read_file(path)));
  } catch (const Error&) {  // a dead drive, for one, of a store that goes on without it
    SwapOwner owner;
    owner.state = SwapOwner::State::unknown;
    return owner;
  }
}

void refuse_owner(const std::string& directory, const SwapOwner& owner) {
  throw UsageError(fmt::format(
      "the swap store in {} is in use by process {} on host {}. Wait for that run to end, stop it, "
      "or give this one another --swap-path.",
      directory, owner.pid == 0 ? "unknown" : fmt::to_string(owner.pid),
      owner.host.empty() ? "unknown" : owner.host));
}

StoreLock::StoreLock(std::string path, Fd fd, SwapOwner previous)
    : path_(std::move(path)), fd_(std::move(fd)), previous_(std::move(previous)), owner_(::getpid()) {}

StoreLock StoreLock::acquire(const std::string& directory) {
  try {
    return take(directory);
  } catch (const IoError& error) {
    if (is_shortage(error.code())) throw;
    refuse_lock(directory, error.what());
  } catch (const CorruptData&) {
    refuse_lock(directory, "it is a pipe");
  }
}

StoreLock StoreLock::take(const std::string& directory) {
  const std::string path = join(directory, lock_name);
  const FolderGuard guard(directory);
  SwapOwner reclaimed;
  for (;;) {
    Fd fd = open_file(path, O_RDWR | O_CREAT);
    const bool held = ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0;
    if (held && errno != EWOULDBLOCK) throw IoError("lock", path, 0, 0, errno);
    if (const FileAt found = file_at(fd.get(), path); !found.is_same) {
      if (found.code != 0 && found.code != ENOENT) throw IoError("stat", path, 0, 0, found.code);
      continue;  // its owner removed it meanwhile
    }
    const SwapOwner owner = parse_owner(text_of(read_file(path)));
    if (held && owner.state == SwapOwner::State::dead) {
      remove_file(path);  // only a forked child of the dead owner still holds it
      reclaimed = owner;
      continue;
    }
    if (held) refuse_owner(directory, owner);
    const std::string text = own_text();
    truncate_file(fd.get(), path, 0);
    write_at(fd.get(), path, 0, std::as_bytes(std::span(text)));
    return {path, std::move(fd), reclaimed.pid != 0 ? reclaimed : owner};
  }
}

bool StoreLock::owned_by_this_process() const {
  return ::getpid() == owner_;
}

StoreLock::~StoreLock() {
  if (!fd_ || !owned_by_this_process()) return;  // closing a child's copy releases nothing
  try {
    if (remove_)
      remove_file(path_);
    else
      truncate_file(fd_.get(), path_, 0);  // a full text would only call a cleanly closed store stale
  } catch (const std::exception&) {        // what cannot be written any more cannot be cleaned up either
  }
  ::flock(fd_.get(), LOCK_UN);  // also where a forked child still has a copy
}

}  // namespace headrace::swap
