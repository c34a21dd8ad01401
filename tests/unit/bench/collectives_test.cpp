// The collectives benchmark over ranks that are threads of this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/bench.h"
#include "headrace/errors.h"
#include "support/thread_communicator.h"

namespace headrace {
namespace {

using namespace literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A communicator that spoils what one collective delivers on this rank.
class SpoilingCommunicator final : public Communicator {
 public:
  SpoilingCommunicator(std::unique_ptr<Communicator> communicator, Device& device, std::string spoiled)
      : communicator_(std::move(communicator)), device_(device), spoiled_(std::move(spoiled)) {}
  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  void all_gather(void* buffer, std::span<const Bytes> pieces, Traffic traffic,
                  std::string_view label) override {
    communicator_->all_gather(buffer, pieces, traffic, label);
    if (traffic != Traffic::control) spoil("all_gather", buffer);
  }
  void all_to_all(std::span<const Piece> send, std::span<const Piece> receive, Traffic traffic,
                  std::string_view label) override {
    communicator_->all_to_all(send, receive, traffic, label);
    spoil(traffic == Traffic::reduce_scatter ? "reduce_scatter" : "all_to_all", receive[0].data);
  }
  void all_reduce(std::span<float> values, Traffic traffic, std::string_view label) override {
    communicator_->all_reduce(values, traffic, label);
    spoil("all_reduce", values.data());
  }
  void all_reduce(std::span<double> values, Traffic traffic, std::string_view label) override {
    communicator_->all_reduce(values, traffic, label);
  }
  void all_reduce(std::span<std::uint64_t> values, Traffic traffic, std::string_view label) override {
    communicator_->all_reduce(values, traffic, label);
  }
  void broadcast(void* buffer, Bytes bytes, int root, Traffic traffic, std::string_view label) override {
    communicator_->broadcast(buffer, bytes, root, traffic, label);
    spoil("broadcast", buffer);
  }
  void barrier(std::string_view label) override { communicator_->barrier(label); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return communicator_->split(color, key);
  }
  TrafficCounters counters() const override { return communicator_->counters(); }

 private:
  void spoil(std::string_view collective, void* memory) {
    if (collective != spoiled_) return;
    auto* third_byte = static_cast<std::byte*>(memory) + 2;  // of an fp32 value: more than a sum rounds off
    device_.enqueue(Lane::communicate, "spoil", [third_byte] { *third_byte ^= std::byte{1}; });
  }
  std::unique_ptr<Communicator> communicator_;
  Device& device_;
  std::string spoiled_;
};

struct Job {
  int ranks = 3;
  std::vector<Bytes> sizes = {4_KiB};
  std::string spoiled;  // this collective, on rank 1
  bool rank_0_stops = false;
  bool rank_1_has_other_sizes = false;
};

// Rank 0's report.
BenchReport run(const Job& job) {
  BenchReport report;
  testing::run_ranks(job.ranks, [&](int rank, const std::shared_ptr<testing::ThreadHub>& hub) {
    BenchOptions options{.sizes = job.sizes, .seconds_per_case = 0.001};
    if (job.rank_1_has_other_sizes && rank == 1) options.sizes.back() /= 2;
    const BenchMemory memory = collective_bench_memory(options.sizes.back(), job.ranks);
    const auto device = make_cpu_device({.memory_bytes = memory.device_bytes, .compute_threads = 1});
    const auto kernels = make_cpu_kernels(*device);
    SpoilingCommunicator communicator(testing::make_thread_communicator(hub, *device, rank), *device,
                                      rank == 1 ? job.spoiled : "");
    MemoryBudget host("host", memory.host_bytes);
    const BenchControl control{.stop_requested = [&] { return job.rank_0_stops && rank == 0; },
                               .progress = {}};
    BenchReport own = bench_collectives(*device, *kernels, communicator, host, options, control);
    if (rank == 0) report = std::move(own);
  });
  return report;
}

std::string error_of(const Job& job) {
  try {
    run(job);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(CollectivesBench, every_collective_is_measured_at_every_size_and_at_an_uneven_one) {
  const BenchReport report = run({.ranks = 3, .sizes = {4_KiB, 2_MiB}, .spoiled = {}});
  std::vector<std::string> names, expected;
  for (const BenchResult& result : report.results) names.push_back(result.name);
  for (const char* name : {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all"}) {
    const bool adds = std::string_view(name).find("reduce") != std::string_view::npos;
    expected.push_back(fmt::format("{} 4KiB", name));
    expected.push_back(fmt::format("{} {}B (uneven)", name, adds ? 1'000'004 : 1'000'007));
    expected.push_back(fmt::format("{} 2MiB", name));
  }
  EXPECT_EQ(names, expected);
}

TEST(CollectivesBench, figures_follow_from_time_and_size_by_the_definitions) {
  for (const BenchResult& result : run({.ranks = 2, .sizes = {64_KiB}, .spoiled = {}}).results) {
    const double algorithm = static_cast<double>(result.bytes) / result.seconds * 1e-9;
    const bool whole = result.group == "all_reduce" || result.group == "broadcast";  // of two ranks
    EXPECT_EQ(result.unit, "GB/s");
    EXPECT_DOUBLE_EQ(result.algorithm_bandwidth.value_or(0), algorithm) << result.name;
    EXPECT_DOUBLE_EQ(result.value, algorithm * (whole ? 1 : 0.5)) << result.name;
    EXPECT_GT(result.ratio().value_or(0), 0) << result.name;
  }
}

TEST(CollectivesBench, ranks_that_get_an_empty_slice_are_right_too) {
  EXPECT_EQ(run({.ranks = 4, .sizes = {4, 7, 13}, .spoiled = {}}).results.size(), 20u);
}

TEST(CollectivesBench, wrong_data_of_any_collective_is_an_error_that_names_it) {
  for (const std::string name : {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all"}) {
    const std::string error = error_of({.ranks = 3, .sizes = {4_KiB}, .spoiled = name});
    EXPECT_THAT(error, AllOf(HasSubstr(name + " of 4KiB"), HasSubstr("rank 1"))) << error;
  }
}

TEST(CollectivesBench, a_stop_on_one_rank_stops_all_at_the_same_sample) {
  EXPECT_TRUE(run({.ranks = 3, .sizes = {4_KiB}, .spoiled = {}, .rank_0_stops = true}).stopped);
}

TEST(CollectivesBench, ranks_with_other_sizes_are_refused_by_name) {
  EXPECT_THAT(error_of({.ranks = 2, .sizes = {4_KiB}, .spoiled = {}, .rank_1_has_other_sizes = true}),
              HasSubstr("rank 1 was started with other sizes"));
}

TEST(CollectivesBench, one_rank_is_told_that_nothing_moves_and_has_times_alone) {
  const BenchReport report = run({.ranks = 1, .sizes = {4_KiB}, .spoiled = {}});
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_THAT(report.notes[0], AllOf(HasSubstr("1 rank"), HasSubstr("mpirun")));
  for (const BenchResult& result : report.results) {
    EXPECT_EQ(result.unit, "us");
    EXPECT_FALSE(result.algorithm_bandwidth);
    EXPECT_FALSE(result.ceiling);
    EXPECT_DOUBLE_EQ(result.value, result.seconds * 1e6);
  }
}

}  // namespace
}  // namespace headrace
