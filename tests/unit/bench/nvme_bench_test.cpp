// The whole benchmark on drives that are slow, or that fail on the way.
#include "headrace/nvme_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <map>

#include "headrace/errors.h"
#include "src/bench/path_failure.h"
#include "tests/support/delaying_io_engine.h"
#include "tests/support/fault_io_engine.h"
#include "tests/support/temporary_folder.h"

namespace headrace::testing {
namespace {

using namespace literals;
using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double megabytes = 1e6;

// Transfers of the files below `folder` go through `inside`, all others through `outside`.
class EnginePerFolder final : public IoEngine {
 public:
  EnginePerFolder(std::string folder, std::unique_ptr<IoEngine> inside, std::unique_ptr<IoEngine> outside)
      : folder_(std::move(folder)), inside_(std::move(inside)), outside_(std::move(outside)) {}
  std::string_view name() const override { return "per folder"; }
  IoCounters counters() const override { return outside_->counters(); }
  IoTicket submit(IoDirection direction, const IoFile& file, std::uint64_t offset, HostLease buffer,
                  Bytes bytes) override {
    IoEngine& engine = file.path().starts_with(folder_ + "/") ? *inside_ : *outside_;
    return engine.submit(direction, file, offset, std::move(buffer), bytes);
  }

 private:
  std::string folder_;
  std::unique_ptr<IoEngine> inside_, outside_;
};

class NvmeBenchTest : public ::testing::Test {
 protected:
  NvmeBenchOptions options(double seconds) const {
    return {.paths = {folder_.path()},
            .operations = {NvmeOperation::read, NvmeOperation::write},
            .accesses = {NvmeAccess::sequential},
            .blocks = {64_KiB},
            .depths = {4},
            .file_bytes = 16_MiB,
            .seconds = seconds,
            .engine = {}};
  }
  NvmeBenchOptions sustained(double seconds, Bytes block, std::uint32_t depth) const {
    NvmeBenchOptions all = options(60);
    all.blocks = {block};
    all.depths = {depth};
    all.file_bytes = 0;
    all.sustained_seconds = seconds;
    return all;
  }
  static std::unique_ptr<IoEngine> slow_writes(double bytes_per_second) {
    return make_delaying_engine(make_thread_engine({}), {.write = {.bytes_per_second = bytes_per_second}});
  }
  // Calls `then` once, when that part of the time is over.
  static NvmeControl at(double part, std::function<void()> then) {
    return {.stop_requested = {},
            .progress =
                [part, then = std::move(then), called = false](double done, std::string_view) mutable {
                  if (done >= part && !std::exchange(called, true)) then();
                },
            .say = {}};
  }

  TemporaryFolder folder_, other_;
  MemoryBudget host_{"host", 4_GiB};
};

TEST_F(NvmeBenchTest, sustained_writes_of_a_drive_too_slow_for_what_is_in_flight_do_not_fit_the_time) {
  const auto engine = slow_writes(20 * megabytes);
  NvmeBenchOptions all = sustained(1, 0, 0);
  all.blocks = default_nvme_blocks();
  all.depths = default_nvme_depths();
  try {
    bench_nvme_sustained(*engine, host_, all, {});
    FAIL() << "34 blocks of 8 MiB were written in a second";
  } catch (const DoesNotFit& error) {
    EXPECT_THAT(error.what(), HasSubstr("272 MiB"));
    EXPECT_THAT(error.what(), HasSubstr("--sustained 1"));  // 14 seconds and some more
    EXPECT_THAT(error.what(), HasSubstr("--block or --depth"));
  }
}

TEST_F(NvmeBenchTest, the_file_of_sustained_writes_is_written_until_it_holds_what_is_in_flight) {
  const auto engine = slow_writes(30 * megabytes);  // a quarter of the second is not enough for 10 MiB
  const NvmeSustainedReport report = bench_nvme_sustained(*engine, host_, sustained(1, 1_MiB, 8), {});
  EXPECT_GE(report.run.paths.front().file_bytes, 10_MiB);
  ASSERT_EQ(report.results.size(), 1u);
  EXPECT_NEAR(report.results.front().steady, 0.030, 0.004);
}

TEST_F(NvmeBenchTest, a_slow_drive_with_large_blocks_keeps_the_time_and_gives_what_fits) {
  const auto engine = slow_writes(60 * megabytes);
  NvmeBenchOptions all = options(2);
  all.blocks = {1_MiB, 16_MiB};
  all.depths = {1};
  all.file_bytes = 0;
  const NvmeReport report = bench_nvme(*engine, host_, all, {});
  EXPECT_LT(report.seconds, 2.5);
  ASSERT_FALSE(report.results.empty());
  for (const NvmeResult& result : report.results) EXPECT_EQ(result.block_bytes, 1_MiB);
  EXPECT_THAT(report.notes, Contains(HasSubstr("16MiB depth 1, more in flight than the file")));
}

TEST_F(NvmeBenchTest, a_time_that_is_too_short_for_any_case_asks_for_enough) {
  const auto engine = make_delaying_engine(make_thread_engine({}), {.read = {.fixed = milliseconds(1100)}});
  const NvmeReport report = bench_nvme(*engine, host_, options(1), {});
  EXPECT_THAT(report.results, IsEmpty());
  EXPECT_FALSE(report.stopped);
  EXPECT_GE(report.seconds_needed, 2);
  EXPECT_THAT(report.notes, Contains(HasSubstr("left out: 2 of 2 cases")));
}

TEST_F(NvmeBenchTest, a_path_that_fails_ends_its_own_cases_and_what_was_measured_is_reported) {
  const auto plan = std::make_shared<FaultPlan>();
  EnginePerFolder engine(other_.path(), make_fault_engine(make_thread_engine({}), plan),
                         make_thread_engine({}));
  NvmeBenchOptions all = options(1.5);
  all.paths = {folder_.path(), other_.path()};
  const NvmeReport report = bench_nvme(engine, host_, all, at(0.6, [&] { plan->add({.code = EIO}); }));
  EXPECT_GE(plan->hits(), 1u);
  ASSERT_EQ(report.failures.size(), 1u);
  const std::string& failure = report.failures.front();
  EXPECT_THAT(failure, HasSubstr(other_.path() + ": "));
  EXPECT_THAT(failure, HasSubstr("Input/output error"));
  EXPECT_THAT(failure, HasSubstr("health"));
  EXPECT_THAT(failure, Not(HasSubstr(".tmp")));  // a file without a name
  EXPECT_THAT(report.notes, Contains(failure));
  EXPECT_THAT(report.notes, Not(Contains(HasSubstr("left out"))));
  EXPECT_GT(report.seconds, 1.2);  // the other path goes on
  std::map<std::string, int> rounds;
  for (const NvmeResult& result : report.results) rounds[result.path] += result.rounds;
  EXPECT_EQ(report.results.size(), 6u);
  EXPECT_GT(rounds[folder_.path()], rounds[other_.path()]);
  EXPECT_GT(rounds[other_.path()], 0);
}

TEST_F(NvmeBenchTest, sustained_writes_that_fail_leave_the_intervals_before) {
  const auto plan = std::make_shared<FaultPlan>();
  const auto engine = make_fault_engine(slow_writes(200 * megabytes), plan);
  const auto fail = [&] { plan->add({.direction = IoDirection::write, .code = ENOSPC}); };
  const NvmeSustainedReport report =
      bench_nvme_sustained(*engine, host_, sustained(1.5, 1_MiB, 4), at(0.7, fail));
  ASSERT_EQ(report.results.size(), 1u);
  const std::vector<double>& rates = report.results.front().rates;
  EXPECT_GE(rates.size(), 2u);
  EXPECT_LT(rates.size(), 6u);
  EXPECT_NEAR(report.results.front().steady, 0.2, 0.03);
  EXPECT_THAT(report.run.failures, ElementsAre(HasSubstr(folder_.path() + ": ")));
  EXPECT_THAT(report.run.notes, Contains(HasSubstr("--file-size")));
}

TEST_F(NvmeBenchTest, a_path_that_fails_before_anything_is_measured_is_an_error_with_its_remedy) {
  const std::map<int, std::string> remedies = {{ENOSPC, "free some"}, {EDQUOT, "quota"}, {EIO, "health"}};
  for (const auto& [code, remedy] : remedies) {
    const auto plan = std::make_shared<FaultPlan>();
    plan->add({.direction = IoDirection::write, .first = 5, .code = code});
    const auto engine = make_fault_engine(make_thread_engine({}), plan);
    try {
      bench_nvme(*engine, host_, options(1), {});
      FAIL() << "the failure was not told";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr(folder_.path() + ": write of the benchmark's file at offset 5242880"));
      EXPECT_THAT(error.what(), HasSubstr(remedy));
      EXPECT_EQ(dynamic_cast<const DoesNotFit*>(&error) != nullptr, code != EIO);
    }
    EXPECT_THAT(folder_.names(), IsEmpty());
  }
}

TEST_F(NvmeBenchTest, wrong_data_is_an_error_whatever_was_measured) {
  const auto plan = std::make_shared<FaultPlan>();
  class Corrupting final : public IoEngine {
   public:
    explicit Corrupting(std::unique_ptr<IoEngine> inner) : inner_(std::move(inner)) {}
    std::string_view name() const override { return "corrupting"; }
    IoCounters counters() const override { return inner_->counters(); }
    IoTicket submit(IoDirection direction, const IoFile& file, std::uint64_t offset, HostLease buffer,
                    Bytes bytes) override {
      const std::uint64_t place =
          wrong && direction == IoDirection::read ? (offset == 0 ? bytes : 0) : offset;
      return inner_->submit(direction, file, place, std::move(buffer), bytes);
    }
    bool wrong = false;

   private:
    std::unique_ptr<IoEngine> inner_;
  } engine(make_thread_engine({}));
  try {
    bench_nvme(engine, host_, options(1), at(0.6, [&] { engine.wrong = true; }));
    FAIL() << "blocks of another place were taken";
  } catch (const PathFailure&) {
    FAIL() << "taken for a failed transfer";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(folder_.path() + ": the byte at offset"));
  }
}

TEST_F(NvmeBenchTest, what_the_engine_cannot_have_in_flight_is_not_called_the_depth) {
  NvmeBenchOptions all = options(1);
  all.operations = {NvmeOperation::read};
  all.blocks = {4_KiB};
  all.depths = {64, 128};
  all.file_bytes = 160_MiB;
  all.engine = nvme_engine_options(all);
  const auto engine = make_thread_engine(all.engine);
  const NvmeReport report = bench_nvme(*engine, host_, all, {});
  ASSERT_EQ(report.results.size(), 2u);
  for (const NvmeResult& result : report.results) EXPECT_EQ(result.in_flight, 64);
  EXPECT_THAT(report.notes, Contains(HasSubstr("4KiB depth 128: 64 blocks at a time")));
  EXPECT_THAT(report.notes, Each(Not(HasSubstr("depth 64"))));
}

}  // namespace
}  // namespace headrace::testing
