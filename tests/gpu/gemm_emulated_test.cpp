// How products on the device use cuBLASLt, and that what they share is found by the emulation.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "gpu/gemm.h"
#include "headrace/errors.h"
#include "support/cuda_emulation/cublaslt.h"
#include "support/cuda_emulation/options.h"
#include "tests/gpu/gpu_harness.h"

namespace headrace::test {
namespace {

using cuda_emulation::algorithms_chosen;
using cuda_emulation::cublaslt_objects;

constexpr std::int64_t side = 64;
constexpr Bytes workspace_bytes = (Bytes{1} << 20) + 256;

class GemmUnderEmulation : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    workspace_.emplace(*device, std::vector<std::byte>(workspace_bytes));
    gemm_.emplace(workspace_->data(), workspace_bytes);
  }
  Matrix square(const Operand& operand) const { return {operand.data(), DType::f32, side, side, side}; }

  const std::vector<float> ones_ = std::vector<float>(side * side, 1.0f);
  std::optional<Operand> workspace_;
  std::optional<CudaGemm> gemm_;
};

TEST_F(GemmUnderEmulation, the_second_product_of_a_problem_asks_for_no_algorithm) {
  const Operand a(*device, ones_), b(*device, ones_), elsewhere(*device, ones_, 64), c(*device, ones_);
  const auto before = algorithms_chosen();
  gemm_->run(queue(), {.a = square(a), .b = square(b), .c = square(c)});
  EXPECT_EQ(algorithms_chosen(), before + 1);
  gemm_->run(queue(), {.a = square(b), .b = square(elsewhere), .c = square(c), .accumulate = true});
  EXPECT_EQ(algorithms_chosen(), before + 1);
  gemm_->run(queue(), {.a = square(a), .b = square(b), .bias = elsewhere.data(), .c = square(c)});
  gemm_->run(queue(), {.a = square(a), .b = square(b), .transpose = Transpose::a, .c = square(c)});
  EXPECT_EQ(algorithms_chosen(), before + 3);
  EXPECT_EQ(c.values<float>()[0], static_cast<float>(side));
}

TEST_F(GemmUnderEmulation, everything_taken_from_cublas_is_given_back) {
  const std::size_t before = cublaslt_objects();
  const Operand a(*device, ones_), b(*device, ones_), c(*device, ones_);
  gemm_->run(queue(), {.a = square(a), .b = square(b), .bias = b.data(), .c = square(c)});
  EXPECT_GT(cublaslt_objects(), before);
  device->synchronize();
  gemm_.reset();
  EXPECT_EQ(cublaslt_objects(), before);
}

TEST_F(GemmUnderEmulation, a_queue_that_only_measures_takes_nothing_from_cublas) {
  const std::size_t before = cublaslt_objects();
  CudaGemm measured(nullptr, workspace_bytes);
  const Matrix nowhere{nullptr, DType::f32, side, side, side};
  measured.run(idle_queue(), {.a = nowhere, .b = nowhere, .c = nowhere});
  EXPECT_EQ(cublaslt_objects(), before);
}

TEST_F(GemmUnderEmulation, products_of_two_lanes_in_one_workspace_are_a_violation) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Operand a(*device, ones_), b(*device, ones_), c(*device, ones_), d(*device, ones_);
  const auto on_both_lanes = [&] {
    gemm_->run(queue(Lane::compute), {.a = square(a), .b = square(b), .c = square(c)});
    gemm_->run(queue(Lane::communicate), {.a = square(a), .b = square(b), .c = square(d)});
    device->synchronize();
  };
  EXPECT_EXIT(on_both_lanes(), ::testing::ExitedWithCode(86),
              "\"cublasLtMatmul\" of stream .* which stream .* has written: no event or wait orders the two");
}

TEST_F(GemmUnderEmulation, a_product_that_does_not_start_is_an_error_that_names_it) {
  const Operand a(*device, ones_), b(*device, ones_), c(*device, ones_);
  const GemmCall call{.a = square(a), .b = square(b), .transpose = Transpose::b, .c = square(c)};
  cuda_emulation::options().faults["cublasLtMatmul"] = 1;
  try {
    gemm_->run(queue(), call);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "cuBLAS could not start the product of fp32 64 x 64 by 64 x 64 to fp32, b "
                 "transposed (strides 64, 64, 64): CUBLAS_STATUS_EXECUTION_FAILED");
  }
  gemm_->run(queue(), call);
  EXPECT_EQ(c.values<float>()[side], static_cast<float>(side));
}

// Without this, that bits are the same everywhere would prove nothing.
TEST_F(GemmUnderEmulation, bits_may_depend_on_what_the_choice_of_an_algorithm_was_promised) {
  std::vector<float> values(side * side);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  const Operand a(*device, values), c(*device, ones_), d(*device, ones_);
  CudaGemm smaller(workspace_->data(), (workspace_bytes - 256) / 2 + 256);
  gemm_->run(queue(), {.a = square(a), .b = square(a), .c = square(c)});
  smaller.run(queue(), {.a = square(a), .b = square(a), .c = square(d)});
  EXPECT_NE(c.values<float>(), d.values<float>());
}

}  // namespace
}  // namespace headrace::test
