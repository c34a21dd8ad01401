#include "headrace/adam_bench.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "headrace/errors.h"
#include "src/bench/update_check.h"
#include "src/bench/update_tensors.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

UpdateCase case_of(std::string_view format, std::string_view optimizer, TensorShape shape) {
  return {update_format(format), update_arguments(optimizer), shape};
}

double ideal(std::string_view format, std::string_view optimizer = "adamw") {
  return ideal_bytes_per_element(case_of(format, optimizer, {1, 64}));
}

TEST(AdamBench, ideal_traffic_counts_each_state_in_and_out_and_gradient_and_16_bit_parameters_once) {
  EXPECT_DOUBLE_EQ(ideal("fp32"), 28);  // 4 reads, 3 writes
  EXPECT_DOUBLE_EQ(ideal("bf16"), 28);  // 24, gradient 2, parameters 2
  EXPECT_DOUBLE_EQ(ideal("fp16"), 28);
  EXPECT_DOUBLE_EQ(ideal("bf16-moments"), 20);                // master 8, moments 8
  EXPECT_DOUBLE_EQ(ideal("int8-moments"), 8 + 4 + 0.25 + 4);  // codes 4, scales 2 * 2 * 4 / 64
  EXPECT_DOUBLE_EQ(ideal("bf16-master"), 4 + 16 + 2);
  EXPECT_DOUBLE_EQ(ideal("bf16-all"), 4 + 8 + 2);
  EXPECT_DOUBLE_EQ(ideal("fp32", "amsgrad"), 36);
  EXPECT_DOUBLE_EQ(ideal("fp32", "lion"), 20);
  EXPECT_DOUBLE_EQ(ideal("fp32", "adagrad"), 20);
}

TEST(AdamBench, tensors_lie_apart_within_their_memory) {
  for (const std::string_view format : adam_bench_formats())
    for (const std::string_view optimizer : adam_bench_optimizers()) {
      const UpdateCase one = case_of(format, optimizer, {3, 192});
      std::vector<std::byte> memory(tensor_bytes(one));
      const std::vector<GroupSpan> tensors = lay_out(one, memory);
      ASSERT_EQ(tensors.size(), 3u);
      // Every byte that an update of one touches is written by filling it alone.
      std::vector<int> writers(memory.size());
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        for (const std::byte before : {std::byte{0x55}, std::byte{0xaa}}) {
          std::fill(memory.begin(), memory.end(), before);
          fill(one, {&tensors[t], 1});
          for (std::size_t i = 0; i < memory.size(); ++i)
            if (memory[i] != before) writers[i] |= 1 << t;
        }
      }
      std::size_t touched = 0;
      for (const int who : writers) {
        ASSERT_TRUE(who == 0 || who == 1 || who == 2 || who == 4) << format << ' ' << optimizer;
        touched += who != 0 ? 1 : 0;
      }
      const double least = ideal_bytes_per_element(one) / 2 * 3 * 192;
      EXPECT_GE(static_cast<double>(touched), least) << format << ' ' << optimizer;
    }
}

TEST(AdamBench, shapes_are_read_as_they_are_written) {
  for (const TensorShape& shape : default_adam_shapes())
    EXPECT_EQ(parse_shape(text_of(shape), "--elements"), shape) << text_of(shape);
  EXPECT_EQ(text_of({10000, 4096}), "10000x4Ki");
  EXPECT_EQ(parse_shape("4096", "--elements"), (TensorShape{1, 4096}));
  EXPECT_EQ(parse_shape("2x64", "--elements"), (TensorShape{2, 64}));
  for (const char* text :
       {"", "x", "0", "65", "64kb", "-64", "64x", "x64", "64x64x64", "99999999Gi", "1.5Mi", "0x64"})
    EXPECT_THROW(parse_shape(text, "--elements"), UsageError) << text;
}

TEST(AdamBench, more_than_two_to_the_44_elements_in_all_are_refused_with_the_value) {
  EXPECT_EQ(text_of({1, std::uint64_t{1} << 44}), "16Ti");
  EXPECT_EQ(parse_shape("16Ti", "--elements"), (TensorShape{1, std::uint64_t{1} << 44}));
  EXPECT_EQ(parse_shape("16384Gi", "--elements"), (TensorShape{1, std::uint64_t{1} << 44}));
  EXPECT_EQ(parse_shape("1Mix16Mi", "--elements"), (TensorShape{1 << 20, 1 << 24}));
  for (const char* text : {"17Ti", "1Mix32Mi", "16384Gix16384Gi", "16777216x16384Gi", "262144x16384Gi",
                           "99999999Gi", "99999999999999999999", "99999999999999999999x64"}) {
    try {
      parse_shape(text, "--elements");
      ADD_FAILURE() << text;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(fmt::format("--elements: \"{}\"", text)), HasSubstr("2^44")));
    }
  }
}

// 2^21 elements and more are written past the caches.
TEST(AdamBench, other_bits_in_any_array_of_a_tensor_are_found_in_a_large_case_too) {
  for (const std::string_view format : adam_bench_formats())
    for (const TensorShape shape :
         {TensorShape{1, 192}, TensorShape{20, 4096}, TensorShape{1, (1 << 21) + 64}}) {
      const UpdateCase one = case_of(format, "adamw", shape);
      std::vector<std::byte> memory(tensor_bytes(one));
      const std::vector<GroupSpan> tensors = lay_out(one, memory);
      fill(one, tensors);
      EXPECT_FALSE(has_scalar_bits(one, tensors)) << format;
      optimizer_update_parallel(tensors, {&one.arguments, 1});
      EXPECT_TRUE(has_scalar_bits(one, tensors)) << format;
      for (const std::span<std::byte> array : arrays_of(tensors.back().span))
        for (std::byte* const wrong : {&array.front(), &array.back()}) {
          *wrong ^= std::byte{1};
          EXPECT_FALSE(has_scalar_bits(one, tensors)) << format;
          *wrong ^= std::byte{1};
        }
    }
}

AdamBenchReport quick(const AdamBenchOptions& options, Bytes memory = Bytes{1} << 30,
                      const BenchControl& control = {}) {
  MemoryBudget host("host", memory);
  return bench_adam(host, options, control);
}

TEST(AdamBench, every_format_and_optimizer_is_measured_against_a_ceiling) {
  AdamBenchOptions options{.optimizers = {}, .shapes = {{1, 4096}, {10, 64}}, .seconds = 0.001};
  for (const std::string_view name : adam_bench_optimizers()) options.optimizers.emplace_back(name);
  const AdamBenchReport report = quick(options);
  EXPECT_EQ(report.results.size(), adam_bench_formats().size() * adam_bench_optimizers().size() * 2);
  for (const AdamBenchResult& result : report.results) {
    EXPECT_GT(result.value, 0) << result.name;
    EXPECT_GT(result.ceiling, 0) << result.name;
    EXPECT_GT(result.ratio, 0) << result.name;
    ASSERT_EQ(result.rounds, 3) << result.name;  // the time is over at once: both medians are of one round
    const double elements = static_cast<double>(result.shape.tensors * result.shape.numel);
    EXPECT_NEAR(result.value, result.bytes_per_element * elements / result.seconds * 1e-9,
                1e-9 * result.value);
  }
}

TEST(AdamBench, a_size_that_does_not_fit_is_named_and_left_out) {
  const AdamBenchReport report = quick(
      {.formats = {"bf16"}, .shapes = {{1, 64}, {1, std::uint64_t{1} << 20}}, .seconds = 0.001}, 1 << 20);
  ASSERT_EQ(report.results.size(), 1u);
  EXPECT_EQ(report.results[0].name, "bf16 adamw 64");
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_THAT(report.notes[0], HasSubstr("bf16 adamw 1Mi takes 16.0 MiB of memory"));
  EXPECT_GT(adam_bench_least_memory({.formats = {"bf16"}, .shapes = {{1, std::uint64_t{1} << 20}}}),
            Bytes{1} << 20);
}

TEST(AdamBench, a_stop_ends_it_with_what_is_measured) {
  int asked = 0;
  const AdamBenchReport report =
      quick({.formats = {"fp32"}, .shapes = {{1, 64}, {1, 128}}, .seconds = 0.001}, 1 << 20,
            {.stop_requested = [&] { return ++asked > 2; }, .progress = {}});
  EXPECT_TRUE(report.stopped);
  ASSERT_EQ(report.results.size(), 1u);
  EXPECT_EQ(report.results[0].rounds, 2);
}

TEST(AdamBench, unknown_names_are_refused) {
  EXPECT_THROW(quick({.formats = {"fp64"}}), UsageError);
  EXPECT_THROW(quick({.optimizers = {"adan"}}), UsageError);
}

TEST(AdamBench, on_two_nodes_each_array_or_tensor_has_a_place) {
  const std::vector<NodeThreads> placement = {{.node = 0, .cpus = {0}, .threads = 1},
                                              {.node = 1, .cpus = {1}, .threads = 1}};
  for (const TensorShape shape : {TensorShape{1, 1 << 20}, TensorShape{1000, 1 << 13}}) {
    const UpdateCase one = case_of("bf16", "adamw", shape);
    std::vector<std::byte> memory(tensor_bytes(one));
    std::map<int, double> bytes;
    for (const NodeRun& run : node_runs(one, memory, placement)) {
      ASSERT_LT(run.begin, run.end);
      ASSERT_LE(run.end, memory.size());
      bytes[run.node] += static_cast<double>(run.end - run.begin);
    }
    EXPECT_NEAR(bytes[0] + bytes[1], static_cast<double>(memory.size()), 1024);
    EXPECT_NEAR(bytes[0] / bytes[1], 1, 0.2);
  }
}

}  // namespace
}  // namespace headrace
