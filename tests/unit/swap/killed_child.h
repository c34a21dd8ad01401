// Stores whose process is killed before any one of its file calls.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>

#include "tests/support/power_loss/syscall_hook.h"
#include "tests/unit/swap/paths_fixture.h"

namespace headrace::testing {

class KilledChildTest : public SwapPathsTest {
 protected:
  // A store of three paths with one step, and nothing else in the folder.
  void start_again(std::uint32_t parity) {
    for (const std::string& name : folder_.names()) std::filesystem::remove_all(folder_.path(name));
    const auto engine = make_thread_engine({});
    const auto store = SwapStore::create(options(3, parity), blocks_of({100'000, 4097}), *engine);
    commit_step(*store, 1);
    store->release_superseded();
  }
  // Does the work in a child that is killed before the file call of that number. Whether it ended before.
  bool ends_before_call(int call, const std::function<void(IoEngine&)>& work) {
    const pid_t child = ::fork();
    if (child == 0) {
      int seen = 0;
      const SyscallHook hook(folder_.path(), [&](const FileEvent&) {
        if (seen++ == call) ::raise(SIGKILL);
        return 0;
      });
      work(*make_thread_engine({}));
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status);
  }
};

}  // namespace headrace::testing
