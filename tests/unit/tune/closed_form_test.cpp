#include "src/tune/closed_form.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace headrace::tune {
namespace {

// The recurrence that the closed form stands for, with reads first on one shared path: event by event.
double simulated_separate(const BlockSeconds& block, std::uint64_t blocks, std::uint32_t buffers) {
  std::vector<double> read(blocks), compute(blocks), write(blocks);
  for (std::uint64_t k = 0; k < blocks; ++k) {
    const double free_buffer = k >= buffers ? write[k - buffers] : 0;
    read[k] = std::max(k > 0 ? read[k - 1] : 0, free_buffer) + block.read;
    compute[k] = std::max(read[k], k > 0 ? compute[k - 1] : 0) + block.compute;
    write[k] = std::max(compute[k], k > 0 ? write[k - 1] : 0) + block.write;
  }
  return blocks > 0 ? write.back() : 0;
}

TEST(ClosedForm, on_separate_paths_is_near_the_recurrence) {
  for (const BlockSeconds& block : {BlockSeconds{2, 1, 1.5}, {1, 3, 1}, {1, 0.1, 4}, {1, 1, 1}})
    for (const std::uint32_t buffers : {3u, 4u, 8u})
      EXPECT_NEAR(separate_paths_step(block, 1000, buffers) / simulated_separate(block, 1000, buffers), 1,
                  0.005);
}

TEST(ClosedForm, on_a_shared_path_adds_reads_and_writes) {
  EXPECT_DOUBLE_EQ(shared_path_step({.read = 2, .compute = 1, .write = 1}, 10, 8), 4 + 9 * 3);
  EXPECT_DOUBLE_EQ(shared_path_step({.read = 2, .compute = 5, .write = 1}, 10, 8), 8 + 9 * 5);
  EXPECT_DOUBLE_EQ(shared_path_step({.read = 1, .compute = 1, .write = 1}, 1, 3), 3);
  EXPECT_DOUBLE_EQ(shared_path_step({.read = 1, .compute = 1, .write = 1}, 0, 3), 0);
}

// With reads and writes that hide the update, all that it adds is that of the first block.
TEST(ClosedForm, over_a_null_step_adds_one_compute_where_io_is_slower) {
  EXPECT_DOUBLE_EQ(step_over_null(100, 0.5, 50, 8), 100.5);
  EXPECT_DOUBLE_EQ(step_over_null(100, 3, 50, 8), 5 + 49 * 3);
}

}  // namespace
}  // namespace headrace::tune
