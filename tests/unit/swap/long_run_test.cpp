// What thousands of steps leave behind: nothing.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/unit/swap/store_fixture.h"

namespace headrace::testing {
namespace {

std::vector<std::string> open_descriptors() {
  std::vector<std::string> targets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;  // the one of this iteration
    targets.push_back(std::filesystem::read_symlink(entry.path(), closed).string());
  }
  std::sort(targets.begin(), targets.end());
  return targets;
}

std::uint64_t disk_bytes(const TemporaryFolder& folder) {
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    struct stat status {};
    if (::stat(entry.path().c_str(), &status) == 0)
      bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  return bytes;
}

// FIELD-CASES A12. The metadata is large enough that the journal is replaced again and again.
TEST(LongRun, two_thousand_steps_keep_descriptors_and_disk_constant_and_no_deleted_file) {
  const TemporaryFolder folder(memory_folder());
  const auto engine = make_thread_engine({});
  const auto store = SwapStore::create({{folder.path("rank-00000")}, Durability::step, "{}"},
                                       blocks_of({4096, 700}), *engine);
  std::vector<std::string> descriptors;
  std::uint64_t bytes = 0;
  for (std::uint64_t step = 1; step <= 2000; ++step) {
    write_step(*store, step);
    store->commit({step, std::string(5000, 'x')});
    store->release_superseded();
    if (step == 50) {
      descriptors = open_descriptors();
      bytes = disk_bytes(folder);
    }
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  for (const std::string& target : descriptors)
    EXPECT_EQ(target.find("(deleted)"), std::string::npos) << target;
  EXPECT_LE(disk_bytes(folder), bytes + (128 << 10));  // the journal's length varies between compactions
  EXPECT_TRUE(holds_step(*store, 2000));
}

}  // namespace
}  // namespace headrace::testing
