#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/bench.h"
#include "headrace/errors.h"
#include "unit/bench/forwarding_device.h"

namespace headrace {
namespace {

using testing::ForwardingDevice;
using namespace literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr BenchOptions quick_options(std::vector<Bytes> sizes) {
  return {.sizes = std::move(sizes), .seconds_per_case = 0.001};
}

class LinkBench : public ::testing::Test {
 protected:
  static constexpr Bytes odd_size = 100'003;

  void SetUp() override {
    const BenchMemory memory = link_bench_memory(odd_size);
    cpu_ = make_cpu_device({.memory_bytes = memory.device_bytes, .compute_threads = 1});
    host_ = std::make_unique<MemoryBudget>("host", memory.host_bytes);
  }
  BenchReport run(Device& device, const BenchControl& control = {}) {
    return bench_link(device, *host_, quick_options({4_KiB, odd_size}), control);
  }
  std::string error_of(Device& device) {
    try {
      run(device);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  std::unique_ptr<Device> cpu_;
  std::unique_ptr<MemoryBudget> host_;
};

TEST_F(LinkBench, every_direction_and_kind_of_memory_is_measured_at_every_size_beside_memcpy) {
  std::vector<std::string> names;
  for (const BenchResult& result : run(*cpu_).results) {
    names.push_back(result.name);
    EXPECT_GT(result.value, 0) << result.name;
    EXPECT_EQ(result.unit, "GB/s");
    EXPECT_GT(result.ratio().value_or(0), 0) << result.name;
    EXPECT_GE(result.rounds, 3) << result.name;
  }
  std::vector<std::string> expected;
  for (const char* size : {"4KiB", "100003B"})
    for (const char* memory : {"pinned", "pageable"})
      for (const char* direction : {"upload", "download", "both"})
        expected.push_back(fmt::format("{} {} {}", memory, direction, size));
  EXPECT_EQ(names, expected);
}

TEST_F(LinkBench, value_is_the_bytes_of_all_directions_over_the_time) {
  for (const BenchResult& result : run(*cpu_).results) {
    const double directions = result.name.find("both") == std::string::npos ? 1 : 2;
    EXPECT_DOUBLE_EQ(result.value, directions * static_cast<double>(result.bytes) / result.seconds * 1e-9);
  }
}

TEST_F(LinkBench, host_memory_is_exactly_what_was_said_and_given_back) {
  run(*cpu_);
  EXPECT_EQ(host_->peak_total(), link_bench_memory(odd_size).host_bytes);
  EXPECT_EQ(host_->current().total(), 0u);
}

TEST_F(LinkBench, a_known_rate_of_the_link_is_the_ceiling_once_for_each_direction) {
  class Rated final : public ForwardingDevice {
   public:
    explicit Rated(Device& device) : ForwardingDevice(device) { info_.link_bytes_per_second = 64e9; }
  } device(*cpu_);
  for (const BenchResult& result : run(device).results)
    EXPECT_EQ(result.ceiling, result.name.find("both") == std::string::npos ? 64.0 : 128.0) << result.name;
}

TEST_F(LinkBench, a_device_whose_memory_the_host_cannot_touch_has_no_ceiling_without_a_rate) {
  class Remote final : public ForwardingDevice {
   public:
    explicit Remote(Device& device) : ForwardingDevice(device) { info_.host_addressable = false; }
  } device(*cpu_);
  const BenchReport report = run(device);
  EXPECT_EQ(report.results.size(), 12u);
  for (const BenchResult& result : report.results) EXPECT_FALSE(result.ratio()) << result.name;
  EXPECT_EQ(report.ceiling, "not known");
}

// FIELD-CASES: a benchmark says "pageable" where pinning is refused.
TEST_F(LinkBench, refused_pinning_leaves_the_pageable_cases_and_a_note) {
  class Unpinnable final : public ForwardingDevice {
   public:
    using ForwardingDevice::ForwardingDevice;
    bool pin(std::span<std::byte>) override { return false; }
  } device(*cpu_);
  const BenchReport report = run(device);
  EXPECT_EQ(report.results.size(), 6u);
  for (const BenchResult& result : report.results) EXPECT_THAT(result.name, HasSubstr("pageable"));
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_THAT(report.notes[0], HasSubstr("pinned"));
}

// A device that spoils the copies of one lane.
class Spoiling final : public ForwardingDevice {
 public:
  enum class How { loses_the_last_byte, takes_another_place, copies_nothing };
  Spoiling(Device& device, Lane lane, How how) : ForwardingDevice(device), lane_(lane), how_(how) {}
  void copy(Lane lane, void* destination, const void* source, Bytes bytes) override {
    if (lane != lane_) return device_.copy(lane, destination, source, bytes);
    if (how_ == How::loses_the_last_byte) device_.copy(lane, destination, source, bytes - 1);
    if (how_ == How::takes_another_place)
      device_.copy(lane, destination, static_cast<const std::byte*>(source) + 1, bytes - 1);
  }

 private:
  Lane lane_;
  How how_;
};

TEST_F(LinkBench, wrong_data_is_an_error_that_names_case_and_offset) {
  using How = Spoiling::How;
  for (const auto& [lane, word] :
       {std::pair{Lane::upload, "upload"}, std::pair{Lane::download, "download"}}) {
    Spoiling losing(*cpu_, lane, How::loses_the_last_byte);
    EXPECT_THAT(error_of(losing), AllOf(HasSubstr(word), HasSubstr("4KiB"), HasSubstr("offset 4095")));
    Spoiling shifting(*cpu_, lane, How::takes_another_place);
    EXPECT_THAT(error_of(shifting), AllOf(HasSubstr(word), HasSubstr("offset 0 ")));
    Spoiling idle(*cpu_, lane, How::copies_nothing);
    EXPECT_THAT(error_of(idle), AllOf(HasSubstr(word), HasSubstr("offset 0 ")));
  }
}

TEST_F(LinkBench, a_stop_before_the_first_round_leaves_no_result) {
  const BenchReport report = run(*cpu_, {.stop_requested = [] { return true; }, .progress = {}});
  EXPECT_TRUE(report.stopped);
  EXPECT_TRUE(report.results.empty());
}

}  // namespace
}  // namespace headrace
