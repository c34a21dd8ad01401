#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "cpu_adam/kernel_table.h"
#include "cpu_adam/parallel_parts.h"
#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "unit/cpu_adam/adam_cases.h"

namespace headrace::test {
namespace {

class AdamParallel : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_cpu_threads(GetParam()); }
  void TearDown() override { set_cpu_threads(0); }
};
INSTANTIATE_TEST_SUITE_P(Threads, AdamParallel, testing::Values(1, 2, 3), testing::PrintToStringParamName());

TEST_P(AdamParallel, update_has_the_bits_of_one_thread) {
  const OptimizerArguments arguments = {.weight_decay = 0.01, .step = 3};
  for (const std::uint64_t numel : {0, 1, 4096, 32768, 200003}) {
    for (const Low low : {Low::none, Low::bf16, Low::f32}) {
      AdamCase input = adversarial_case(numel, 3);
      input.low = low;
      input.gradient_dtype = low == Low::bf16 ? DType::bf16 : DType::f32;
      input.offset_bytes = 4;
      const AdamResult parallel =
          run(input, [&](const AdamArrays& block) { optimizer_update_parallel(block, arguments); });
      ASSERT_EQ(difference(parallel, expected(input, arguments)), "") << numel << " elements";
    }
  }
}

TEST_P(AdamParallel, a_large_update_writes_past_the_caches_with_the_same_bits) {
  const OptimizerArguments arguments = {.weight_decay = 0.01, .step = 3};
  AdamCase input = ordinary_case((1 << 21) + 77, 5);
  input.low = Low::bf16;
  input.gradient_dtype = DType::bf16;
  for (const std::size_t offset : {0, 6}) {
    input.offset_bytes = offset;
    const AdamResult parallel =
        run(input, [&](const AdamArrays& block) { optimizer_update_parallel(block, arguments); });
    ASSERT_EQ(difference(parallel, expected(input, arguments)), "") << "offset " << offset;
  }
}

// How a table's kernels were told to write.
std::mutex asked_mutex;
std::set<Stores> asked;
void record_stores(const UpdateSpan&, const UpdateConstants&, Stores stores) {
  const std::lock_guard lock(asked_mutex);
  asked.insert(stores);
}

std::set<Stores> stores_of_update(std::uint64_t numel, std::uint64_t update_numel) {
  alignas(64) static std::byte low[64];
  KernelTable table = *scalar_kernels;
  table.update = record_stores;
  GroupSpan one;
  one.span.numel = numel;
  one.span.low_precision = low;
  const OptimizerArguments arguments;
  asked.clear();
  update_parallel(table, {&one, 1}, {&arguments, 1}, update_numel);
  return asked;
}

TEST(AdamList, that_is_part_of_an_update_is_written_as_the_whole_of_it_would_be) {
  using enum Stores;
  EXPECT_EQ(stores_of_update(1 << 18, 0), std::set{cached});
  EXPECT_EQ(stores_of_update(1 << 18, 1 << 20), std::set{cached});
  EXPECT_EQ(stores_of_update(1 << 18, std::uint64_t{1} << 30), std::set{streaming});
  EXPECT_EQ(stores_of_update(1 << 21, 0), std::set{streaming});
  EXPECT_EQ(stores_of_update(1 << 21, 5), std::set{streaming});
}

// Parts of spans as for_each_part gave them: first element and length, in order.
using Parts = std::multimap<std::uint64_t, std::uint64_t>;

Parts parts_of(const std::vector<GroupSpan>& spans) {
  std::mutex mutex;
  Parts parts;
  for_each_part(spans, [&](const UpdateSpan& part, std::uint32_t) {
    const std::lock_guard lock(mutex);
    parts.emplace(part.first_element, part.numel);
  });
  return parts;
}

// Without memory: where each is cut is all that is asked. Numbers of elements start anew far apart.
constexpr std::uint64_t between_spans = std::uint64_t{1} << 40;

std::vector<GroupSpan> spans_without_memory(const std::vector<std::uint64_t>& numels, MomentDType moments) {
  std::vector<GroupSpan> spans;
  for (const std::uint64_t numel : numels) {
    GroupSpan& one = spans.emplace_back();
    one.span.format.moments = moments;
    one.span.numel = numel;
    one.span.first_element = (spans.size() - 1) * between_spans;
  }
  return spans;
}

TEST_P(AdamParallel, parts_are_each_span_once_and_cut_between_quantisation_blocks) {
  const std::vector<std::uint64_t> numels = {
      0, 1, 63, 64, 65, 4096, 32767, 32768, 32769, 0, 0, 100001, 7, (std::uint64_t{1} << 33) + 17, 3, 0};
  Parts parts = parts_of(spans_without_memory(numels, MomentDType::int8));
  for (std::size_t s = 0; s < numels.size(); ++s) {
    std::uint64_t next = 0;
    while (next < numels[s]) {
      const auto found = parts.find(s * between_spans + next);
      ASSERT_NE(found, parts.end()) << "no part at element " << next << " of span " << s;
      ASSERT_GT(found->second, 0u);
      ASSERT_EQ(next % quantised_block_numel, 0u);
      next += found->second;
      parts.erase(found);
    }
    ASSERT_EQ(next, numels[s]) << "span " << s;
  }
  EXPECT_TRUE(parts.empty());
}

TEST_P(AdamParallel, many_small_spans_share_a_region) {
  const std::vector<std::uint64_t> numels(10000, 4096);
  EXPECT_EQ(parts_of(spans_without_memory(numels, MomentDType::f32)).size(), numels.size());
}

TEST_P(AdamParallel, a_list_has_the_bits_of_its_spans_one_by_one_each_with_its_group) {
  const std::vector<OptimizerArguments> groups = {
      {.weight_decay = 0.01, .step = 3}, {.learning_rate = 0.5, .step = 3}, {.decoupled = false, .step = 7}};
  std::vector<AdamCase> inputs;
  for (const std::uint64_t numel : {5, 0, 4096, 1, 200003, 33, 32768})
    inputs.push_back(adversarial_case(numel, static_cast<std::uint32_t>(inputs.size())));
  std::vector<GroupSpan> spans;
  std::vector<AdamResult> results;
  // Each run() holds the arrays of one case; the innermost has all of them.
  const std::function<void(std::size_t)> add = [&](std::size_t i) {
    if (i == inputs.size()) return optimizer_update_parallel(spans, groups);
    results[i] = run(inputs[i], [&](const AdamArrays& block) {
      spans.push_back({block, static_cast<std::uint32_t>(i % groups.size())});
      add(i + 1);
    });
  };
  results.resize(inputs.size());
  add(0);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    EXPECT_EQ(difference(results[i], expected(inputs[i], groups[i % groups.size()])), "") << "span " << i;
}

TEST(AdamList, arguments_without_meaning_are_refused_also_where_the_list_is_empty) {
  const std::vector<OptimizerArguments> groups = {{}, {.step = 0}}, groups_of_none;
  EXPECT_THROW(optimizer_update_parallel(std::span<const GroupSpan>(), groups), UsageError);
  EXPECT_NO_THROW(optimizer_update_parallel(std::span<const GroupSpan>(), groups_of_none));
}

TEST(AdamList, a_group_that_is_not_there_or_of_another_optimizer_is_refused_before_anything_is_changed) {
  std::vector<float> values(4 * 64, 1.0f);
  GroupSpan span;
  span.span.state = state_arrays({}, reinterpret_cast<std::byte*>(values.data()), 64);
  span.span.gradient = values.data() + 3 * 64;
  span.span.numel = 64;
  GroupSpan wrong = span;
  wrong.group = 1;
  const std::vector<OptimizerArguments> adam(1), both = {{}, {.kind = OptimizerKind::lion}};
  EXPECT_THROW(optimizer_update_parallel(std::vector{span, wrong}, adam), UsageError);
  EXPECT_THROW(optimizer_update_parallel(std::vector{span, wrong}, both), UsageError);
  EXPECT_EQ(values, std::vector<float>(4 * 64, 1.0f));
}

}  // namespace
}  // namespace headrace::test
