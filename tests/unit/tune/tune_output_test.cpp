#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "headrace/config.h"
#include "headrace/tune.h"

namespace headrace {
namespace {

TuneOptions some_options() {
  TuneOptions options;
  options.swap_paths = {"/"};
  return options;
}

TuneReport some_report() {
  TuneReport report;
  report.placements = {{.name = "/", .paths = {0}, .rates = {}}};
  report.best = SwapPoint{.block_bytes = 4608 << 10,
                          .buffers = 12,
                          .queue_depth = 64,
                          .request_bytes = 512 << 10,
                          .io = IoKind::threads};
  report.parameters = 1'000'000'000;
  report.trial_parameters = 30'000'000;
  report.step_seconds = 10;
  report.written_bytes_a_step = 12'000'000'000;
  return report;
}

// FIELD-CASES T5: what was tuned is what the fragment says to `train`.
TEST(TuneFragment, means_the_tuned_point_to_the_reader_of_configurations) {
  const TuneReport report = some_report();
  TuneOptions options = some_options();
  for (const Durability durability : {Durability::step, Durability::none}) {
    options.durability = durability;
    ConfigDraft draft;
    draft.read_text(config_fragment(report, options), "fragment");
    draft.set_flag("model", "gpt2-mini");
    const ResolvedOptions resolved = draft.resolve({});
    EXPECT_EQ(resolved.engine.optimizer_tier, Tier::nvme);
    EXPECT_EQ(resolved.engine.swap_block_bytes, report.best->block_bytes);
    EXPECT_EQ(resolved.engine.swap_buffers, report.best->buffers);
    EXPECT_EQ(resolved.engine.durability, durability);
    EXPECT_EQ(resolved.io, report.best->io);
    EXPECT_EQ(resolved.io_depth, report.best->queue_depth);
    EXPECT_EQ(resolved.io_request_bytes, report.best->request_bytes);
    EXPECT_EQ(resolved.swap_paths, std::vector<std::string>{"/"});
    EXPECT_THAT(resolved.notes, testing::IsEmpty());
  }
}

TEST(TuneFragment, keeps_the_states_that_were_tuned_for) {
  TuneOptions options = some_options();
  options.states = {.kind = OptimizerKind::sgd,
                    .momentum = true,
                    .master = MasterDType::bf16,
                    .moments = MomentDType::int8};
  options.momentum = 0.8;
  ConfigDraft draft;
  draft.read_text(config_fragment(some_report(), options), "fragment");
  draft.set_flag("model", "gpt2-mini");
  const ResolvedOptions resolved = draft.resolve({});
  EXPECT_EQ(resolved.engine.state_format(), options.states);
  EXPECT_EQ(resolved.engine.optimizer.momentum, 0.8);
  EXPECT_THAT(resolved.notes, testing::IsEmpty());
}

TEST(TuneFragment, leaves_to_the_engine_what_was_tried_so_and_keeps_the_threads) {
  TuneReport report = some_report();
  report.best->queue_depth = 0;
  report.best->request_bytes = 0;
  TuneOptions options = some_options();
  options.threads = 3;
  ConfigDraft draft;
  draft.read_text(config_fragment(report, options), "fragment");
  draft.set_flag("model", "gpt2-mini");
  const ResolvedOptions resolved = draft.resolve({});
  EXPECT_EQ(resolved.io_depth, std::nullopt);
  EXPECT_EQ(resolved.io_request_bytes, std::nullopt);
  EXPECT_EQ(resolved.threads, 3);
}

TEST(TuneFragment, of_several_paths_says_how_blocks_are_placed) {
  TuneReport report = some_report();
  TuneOptions options;
  options.swap_paths = {"/usr", "/tmp", "/"};
  report.placements = {{.name = "all", .paths = {0, 1, 2}, .rates = {}},
                       {.name = "by rate", .paths = {0, 2}, .rates = {2e9, 3e9}}};
  const auto resolve = [&] {
    ConfigDraft draft;
    draft.read_text(config_fragment(report, options), "fragment");
    draft.set_flag("model", "gpt2-mini");
    return draft.resolve({});
  };
  report.best->placement = 1;
  const ResolvedOptions by_rate = resolve();
  EXPECT_EQ(by_rate.swap_paths, (std::vector<std::string>{"/usr", "/"}));
  EXPECT_EQ(by_rate.engine.swap_path_rates, (std::vector<double>{2e9, 3e9}));
  report.best->placement = 0;
  options.parity = 1;
  const ResolvedOptions parity = resolve();
  EXPECT_EQ(parity.swap_paths, options.swap_paths);
  EXPECT_EQ(parity.engine.swap_parity, 1u);
  EXPECT_THAT(parity.engine.swap_path_rates, testing::IsEmpty());
}

TEST(TuneFragment, without_a_best_point_is_empty) {
  EXPECT_EQ(config_fragment({}, some_options()), "");
}

TEST(TuneJson, has_the_shape_of_a_benchmark_and_the_life_of_the_drive) {
  TuneReport report = some_report();
  report.ceiling = TuneCeiling{.rounds = 9,
                               .blocks = 100,
                               .step_seconds = 0.5,
                               .closed_form_seconds = 0.48,
                               .share = 0.96,
                               .read_bytes_per_second = 2e9,
                               .write_bytes_per_second = 3e9,
                               .alone_seconds = 0.4};
  report.trials.push_back({.point = *report.best, .stage = "coarse", .failure = "no space"});
  report.over_defaults = TuneComparison{.with = {}, .pairs = 5, .ratio = 1.25, .deviation = 0.01};
  const auto json = nlohmann::json::parse(tune_json(report, some_options(), 600e12));
  EXPECT_EQ(json.at("benchmark"), "tune");
  EXPECT_TRUE(json.at("machine").is_object());
  for (const auto& result : json.at("results"))
    for (const char* key : {"case", "value", "unit", "ceiling", "ratio", "rounds"})
      EXPECT_TRUE(result.contains(key));
  EXPECT_NEAR(json.at("results")[0].at("ratio").get<double>(), 0.96, 1e-9);
  EXPECT_EQ(json.at("trials")[0].at("failure"), "no space");
  EXPECT_EQ(json.at("ceiling").at("share_of_closed_form"), 0.96);
  EXPECT_NEAR(json.at("ceiling").at("over_alone").get<double>(), 0.8, 1e-9);
  EXPECT_EQ(json.at("over_defaults").at("ratio"), 1.25);
  EXPECT_EQ(json.at("over_defaults").at("with").at("swap_buffers"), SwapPoint{}.buffers);
  EXPECT_TRUE(json.at("over_runner_up").is_null());
  EXPECT_EQ(json.at("predicted").at("scope"), predicted_scope);
  // 12 GB in 10 s are 103.68 TB a day.
  EXPECT_NEAR(json.at("predicted").at("written_bytes_a_day").get<double>(), 103.68e12, 1e6);
  EXPECT_NEAR(json.at("predicted").at("endurance_days").get<double>(), 600 / 103.68, 1e-6);
}

TEST(TuneJson, without_plain_transfers_says_nothing_of_them) {
  TuneReport report = some_report();
  report.ceiling = TuneCeiling{.rounds = 1, .blocks = 100, .step_seconds = 0.5, .closed_form_seconds = 0.48};
  const std::string text = tune_json(report, some_options(), 0);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json.at("results").size(), 1u);
  EXPECT_TRUE(json.at("ceiling").at("alone_seconds").is_null());
  EXPECT_EQ(text.find("plain"), std::string::npos);
}

TEST(TuneJson, of_nothing_is_whole_too) {
  const auto json = nlohmann::json::parse(tune_json({}, some_options(), 0));
  EXPECT_TRUE(json.at("best").is_null());
  EXPECT_TRUE(json.at("predicted").at("endurance_days").is_null());
}

}  // namespace
}  // namespace headrace
