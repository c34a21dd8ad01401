#include "src/train/metrics.h"
#include "headrace/train.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "headrace/errors.h"

namespace headrace {
namespace {

using Json = nlohmann::json;

class MetricsFileTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::vector<Json> lines() const {
    std::vector<Json> result;
    std::ifstream file(path_);
    for (std::string text; std::getline(file, text);) result.push_back(Json::parse(text));
    return result;
  }
  std::string path_ =
      (std::filesystem::temp_directory_path() / ("headrace-metrics-" + std::to_string(::getpid()) + ".jsonl"))
          .string();
};

TEST_F(MetricsFileTest, a_step_is_one_line_with_its_numbers_and_null_for_infinity) {
  StepMetrics step;
  step.step = 3;
  step.skipped = true;
  step.gradient_norm = std::numeric_limits<double>::infinity();
  step.ranks.loss = 2.5;
  step.ranks.nvme_read_bytes = (Bytes{1} << 53) + 1;  // beyond a double
  step.ranks.optimizer_seconds = 0.25;
  MetricsFile(path_).write(step);
  ASSERT_EQ(lines().size(), 1u);
  const Json line = lines()[0];
  EXPECT_EQ(line["event"], "step");
  EXPECT_EQ(line["step"], 3);
  EXPECT_EQ(line["loss"], 2.5);
  EXPECT_TRUE(line["grad_norm"].is_null());
  EXPECT_TRUE(line["skipped"].get<bool>());
  EXPECT_EQ(line["nvme_read_bytes"].get<Bytes>(), (Bytes{1} << 53) + 1);
  EXPECT_EQ(line["stall_seconds"]["optimizer"], 0.25);
  EXPECT_FALSE(line.contains("eval_loss"));
}

TEST_F(MetricsFileTest, the_summary_adds_tags_over_tiers_and_lists_them_by_tier) {
  RunSummary summary;
  summary.state_hash = 0xab;
  summary.planned.device[MemoryTag::staging] = 5;
  summary.planned.host[MemoryTag::staging] = 7;
  summary.device_peak[MemoryTag::optimizer] = 9;
  MetricsFile(path_).write(summary);
  const Json line = lines().at(0);
  EXPECT_EQ(line["state_hash"], "00000000000000ab");
  EXPECT_EQ(line["planned"], Json({{"staging", 12}}));
  EXPECT_EQ(line["peak"], Json({{"optimizer", 9}}));
  EXPECT_EQ(line["planned_tiers"]["host"], Json({{"staging", 7}}));
}

TEST_F(MetricsFileTest, a_resumed_run_appends_and_a_new_one_starts_over) {
  MetricsFile(path_).write(StepMetrics{});
  MetricsFile(path_).write(StepMetrics{});
  EXPECT_EQ(lines().size(), 2u);
  MetricsFile fresh(path_);
  EXPECT_EQ(lines().size(), 2u);  // opening alone loses nothing
  fresh.start_over();
  fresh.write(StepMetrics{});
  EXPECT_EQ(lines().size(), 1u);
}

TEST_F(MetricsFileTest, a_full_disk_is_an_error_and_no_path_writes_nothing) {
  MetricsFile full("/dev/full");
  EXPECT_THROW(full.write(StepMetrics{}), Error);
  MetricsFile("").write(StepMetrics{});
  EXPECT_THROW(MetricsFile("/nonexistent/m.jsonl"), UsageError);
}

TEST(Metrics, the_peak_of_this_process_is_known) {
  EXPECT_GT(peak_rss_bytes(), 1u << 20);
}

TEST(Metrics, a_difference_is_of_this_step_alone) {
  EngineCounters before, now;
  before.io.read_bytes = 5, now.io.read_bytes = 12;
  before.traffic.all_gather_bytes = 1, now.traffic.all_gather_bytes = 4;
  now.optimizer_seconds = 2;
  const RankSample sample = difference(now, before);
  EXPECT_EQ(sample.nvme_read_bytes, 7u);
  EXPECT_EQ(sample.all_gather_bytes, 3u);
  EXPECT_EQ(sample.optimizer_seconds, 2);
}

}  // namespace
}  // namespace headrace
