#include "headrace/planner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "headrace/errors.h"

namespace headrace {
namespace {

using namespace literals;

// One unit of `numel` parameters, no activations: the ledger of the papers.
PlanRequest bare_model(std::int64_t numel, int stage, int world_size) {
  PlanRequest request;
  request.units = {{"all", {{.name = "w", .shape = {numel}}}}};
  request.engine.stage = stage;
  request.engine.bucket_bytes = 1;
  request.world_size = world_size;
  return request;
}

Bytes state_bytes(const MemoryPlan& plan) {
  return plan.device[MemoryTag::parameters] + plan.device[MemoryTag::gradients] +
         plan.device[MemoryTag::optimizer];
}

// REFERENCE section 1, the published row: 7.5e9 parameters on 64 ranks.
TEST(MemoryPlan, gives_the_published_bytes_of_each_stage) {
  const double expected_gb[] = {120, 31.4, 16.6, 1.88};
  for (int stage = 0; stage <= 3; ++stage) {
    const double gb =
        static_cast<double>(state_bytes(plan_memory(bare_model(7'500'000'000, stage, 64)))) / 1e9;
    EXPECT_NEAR(gb, expected_gb[stage], expected_gb[stage] * 0.003) << "stage " << stage;
  }
}

TEST(MemoryPlan, follows_the_formula_for_every_world_size) {
  for (const int n : {1, 2, 3, 4, 16, 256}) {
    const double p = 100'000'000;
    const double expected[] = {16 * p, 4 * p + 12 * p / n, 2 * p + 14 * p / n, 16 * p / n};
    for (int stage = 0; stage <= 3; ++stage) {
      const auto bytes = static_cast<double>(state_bytes(plan_memory(bare_model(100'000'000, stage, n))));
      EXPECT_NEAR(bytes, expected[stage], expected[stage] * 0.02) << "stage " << stage << " ranks " << n;
    }
  }
}

TEST(Advice, names_the_smallest_change_and_the_limit_that_would_do) {
  PlanRequest request = bare_model(10'000'000, 0, 1);
  request.device_limit = 64_MiB;
  request.host_limit = 1_GiB;
  const std::string advice = smallest_change_that_fits(request);
  EXPECT_NE(advice.find("--offload-optimizer cpu"), std::string::npos) << advice;
  EXPECT_NE(advice.find("--device-memory"), std::string::npos) << advice;
  request.engine.optimizer_tier = Tier::host;
  EXPECT_EQ(smallest_change_that_fits(request), "");
}

TEST(Advice, that_is_followed_fits) {
  PlanRequest request = bare_model(10'000'000, 3, 1);
  request.device_limit = 48_MiB;
  request.host_limit = 100_MiB;
  const std::string advice = smallest_change_that_fits(request);
  ASSERT_NE(advice.find("--offload-optimizer nvme"), std::string::npos) << advice;
  request.engine.optimizer_tier = Tier::nvme;
  EXPECT_TRUE(plan_memory(request).fits());
}

TEST(Advice, puts_parameters_and_gradients_on_nvme_when_the_host_is_too_small_for_them) {
  PlanRequest request = bare_model(10'000'000, 3, 1);
  for (int unit = 1; unit < 20; ++unit)
    request.units.push_back(
        {fmt::format("unit{}", unit), {{.name = fmt::format("w{}", unit), .shape = {10'000'000}}}});
  request.device_limit = 192_MiB;
  request.host_limit = 128_MiB;
  const std::string advice = smallest_change_that_fits(request);
  for (const char* flag :
       {"--offload-optimizer nvme", "--offload-gradients nvme", "--offload-parameters nvme"})
    EXPECT_NE(advice.find(flag), std::string::npos) << advice;
  EXPECT_EQ(advice.find("--swap-path DIR"), advice.rfind("--swap-path DIR")) << advice;
}

TEST(Advice, shrinks_buffers_that_dominate_before_it_raises_a_limit) {
  PlanRequest request = bare_model(10'000'000, 3, 1);
  request.engine.optimizer_tier = Tier::nvme;
  request.engine.swap_block_bytes = 1024_GiB;
  request.host_limit = 1_GiB;
  const std::string advice = smallest_change_that_fits(request);
  EXPECT_EQ(advice.rfind("It fits with --swap-block 65536KiB, or", 0), 0u) << advice;
  request.engine.swap_block_bytes = 65536_KiB;
  EXPECT_TRUE(plan_memory(request).fits());
  request.engine.swap_block_bytes *= 2;
  EXPECT_FALSE(plan_memory(request).fits());
}

TEST(Advice, gives_up_buffers_of_parameters_and_gradients_on_nvme_before_blocks) {
  PlanRequest request = bare_model(10'000'000, 3, 1);
  for (const auto tier :
       {&EngineOptions::optimizer_tier, &EngineOptions::gradient_tier, &EngineOptions::parameter_tier})
    request.engine.*tier = Tier::nvme;
  request.host_limit = plan_memory(request).host.total() - 1;
  const std::string one = smallest_change_that_fits(request);
  EXPECT_EQ(one.rfind("It fits with --parameter-buffers 8, or", 0), 0u) << one;
  request.engine.parameter_buffers = 1;
  request.host_limit = plan_memory(request).host.total() - 1;
  const std::string other = smallest_change_that_fits(request);
  EXPECT_EQ(other.rfind("It fits with --gradient-buffers 4, or", 0), 0u) << other;
}

TEST(Advice, shrinks_one_buffer_where_one_is_enough) {
  PlanRequest request = bare_model(10'000'000, 0, 1);
  request.engine.bucket_bytes = 64_MiB;
  request.device_limit = plan_memory(request).device.total() - 1;
  const std::string advice = smallest_change_that_fits(request);
  EXPECT_EQ(advice.rfind("It fits with --bucket 32768KiB, or", 0), 0u) << advice;
}

// The machine's memory is not the user's to raise, and the device's is part of it.
TEST(Advice, for_a_machine_that_is_too_small_names_no_limit) {
  PlanRequest request = bare_model(10'000'000, 0, 1);
  request.machine_limit = 150_MiB;
  EXPECT_FALSE(plan_memory(request).fits());
  const std::string advice = smallest_change_that_fits(request);
  EXPECT_NE(advice.find("--offload-optimizer nvme"), std::string::npos) << advice;
  EXPECT_EQ(advice.find("-memory"), std::string::npos) << advice;
  request.device_is_host = false;
  EXPECT_TRUE(plan_memory(request).fits());
}

TEST(Advice, gives_up_a_cache_that_nobody_asked_for) {
  PlanRequest request = bare_model(1'000'000, 3, 1);
  for (int unit = 1; unit < 10; ++unit)
    request.units.push_back(
        {fmt::format("unit{}", unit), {{.name = fmt::format("w{}", unit), .shape = {1'000'000}}}});
  request.engine.optimizer_tier = Tier::nvme;
  const MemoryPlan bare = plan_memory(request);
  request.device_limit = bare.device.total() - 10_MiB;  // the gradients have to go
  request.host_limit = bare.host.total() + 40_MiB;
  request.engine.swap_cache_bytes = 40_MiB;
  const std::string kept = smallest_change_that_fits(request);
  EXPECT_EQ(kept.rfind("It fits with --offload-gradients nvme --swap-path DIR, or", 0), 0u) << kept;
  request.cache_is_spare = true;
  const std::string given_up = smallest_change_that_fits(request);
  EXPECT_EQ(given_up.rfind("It fits with --offload-gradients cpu, or", 0), 0u) << given_up;
}

TEST(Advice, raises_the_limit_to_what_fits_exactly_when_nothing_else_helps) {
  PlanRequest request = bare_model(10'000'000, 3, 1);
  request.engine.optimizer_tier = Tier::nvme;
  request.engine.gradient_tier = request.engine.parameter_tier = Tier::host;
  request.device_limit = 1_MiB;
  request.host_limit = 1_MiB;
  const std::string advice = smallest_change_that_fits(request);
  const auto value_after = [&](std::string_view flag) {
    const auto at = advice.find(flag);
    return at == std::string::npos ? Bytes{0} : std::stoull(advice.substr(at + flag.size() + 1)) * 1_MiB;
  };
  request.device_limit = value_after("--device-memory");
  request.host_limit = value_after("--host-memory");
  EXPECT_TRUE(plan_memory(request).fits()) << advice;
}

// Everything on NVMe: buffers, and 8 bytes of norm for 4096 elements.
TEST(MemoryPlan, of_everything_on_nvme_does_not_grow_with_the_model) {
  const auto host_bytes = [](int units) {
    PlanRequest request = bare_model(1'000'000, 3, 2);
    for (int unit = 1; unit < units; ++unit)
      request.units.push_back(
          {fmt::format("unit{}", unit), {{.name = fmt::format("w{}", unit), .shape = {1'000'000}}}});
    request.engine.optimizer_tier = request.engine.gradient_tier = request.engine.parameter_tier = Tier::nvme;
    request.engine.accumulation = 2;
    const MemoryPlan plan = plan_memory(request);
    EXPECT_GT(plan.nvme[MemoryTag::parameters], Bytes{2} * 500'000 * static_cast<Bytes>(units) - 1);
    EXPECT_GT(plan.nvme[MemoryTag::gradient_accumulators], plan.nvme[MemoryTag::gradients]);
    return plan.host.total();
  };
  EXPECT_LT(host_bytes(200) - host_bytes(10), 190 * (1'000'000 / 2 / 4096 + 2) * 8 + 4096);
}

PlanRequest with_regions(PlanRequest request, std::uint32_t blocks) {
  request.engine.update_region_blocks = blocks;
  return request;
}

TEST(MemoryPlan, has_as_large_regions_of_the_update_as_the_limits_hold) {
  PlanRequest request = bare_model(10'000'000, 2, 1);
  request.engine.optimizer_tier = Tier::host;  // gradients and parameters move
  ASSERT_EQ(plan_memory(request).update_region_blocks, 10u);
  for (std::uint32_t blocks = 1; blocks <= 10; ++blocks) {
    const MemoryPlan given = plan_memory(with_regions(request, blocks));
    const auto fitted = [&](Bytes host_limit, Bytes machine_limit) {
      request.host_limit = host_limit, request.machine_limit = machine_limit;
      const MemoryPlan plan = plan_memory(request);
      return plan.fits() ? plan.update_region_blocks : 0;
    };
    EXPECT_EQ(fitted(given.host.total(), 0), blocks);
    EXPECT_EQ(fitted(0, given.machine_bytes()), blocks);
    EXPECT_EQ(fitted(given.host.total() - 1, 0), blocks - 1);
    EXPECT_EQ(fitted(0, given.machine_bytes() - 1), blocks - 1);
    request.host_limit = request.machine_limit = 0;
  }
}

TEST(Advice, raises_a_host_limit_to_that_of_the_smallest_regions_of_the_update) {
  PlanRequest request = bare_model(10'000'000, 2, 1);
  request.engine.optimizer_tier = Tier::host;
  request.engine.swap_block_bytes = 256_KiB;
  const MemoryPlan smallest = plan_memory(with_regions(request, 1));
  request.host_limit = smallest.host.total() - 1_MiB;
  const std::string advice = smallest_change_that_fits(request);
  EXPECT_NE(advice.find(fmt::format("or as it is with --host-memory {}MiB.",
                                    divide_up(smallest.host.total(), Bytes{1_MiB}))),
            std::string::npos)
      << advice;
}

TEST(SmallestStage, is_the_first_that_fits) {
  PlanRequest request = bare_model(2'000'000, 0, 4);
  for (int i = 1; i < 50; ++i)
    request.units.push_back({std::to_string(i), {{.name = std::to_string(i), .shape = {2'000'000}}}});
  request.device_limit = 750'000'000;  // of 16P = 1.6e9, 4P + 12P/4 = 0.7e9, 2P + 14P/4 = 0.55e9
  EXPECT_EQ(smallest_stage_that_fits(request), 1);
  request.device_limit = 650'000'000;
  EXPECT_EQ(smallest_stage_that_fits(request), 2);
  request.device_limit = 1;
  EXPECT_EQ(smallest_stage_that_fits(request), std::nullopt);
}

TEST(LedgerTable, shows_every_tag_the_totals_and_what_is_missing) {
  PlanRequest request = bare_model(10'000'000, 0, 2);
  request.device_limit = 64_MiB;
  const std::string table = ledger_table(plan_memory(request));
  for (const char* word : {"parameters", "gradients", "optimizer", "total", "limit", "over", "all 2 ranks"})
    EXPECT_NE(table.find(word), std::string::npos) << table;
}

}  // namespace
}  // namespace headrace
