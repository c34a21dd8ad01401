// How products on the device use cuBLASLt, and that what they share is found by the emulation.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "gpu/gemm.h"
#include "support/cuda_emulation/cublaslt.h"
#include "tests/gpu/gpu_harness.h"

namespace headrace::test {
namespace {

using cuda_emulation::algorithms_chosen;
using cuda_emulation::cublaslt_objects;

constexpr std::int64_t side = 64;

class GemmUnderEmulation : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    workspace_.emplace(*device, std::vector<std::byte>(CudaGemm::workspace_bytes));
    gemm_.emplace(workspace_->data(), CudaGemm::workspace_bytes);
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
  CudaGemm measured(nullptr, CudaGemm::workspace_bytes);
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
  EXPECT_EXIT(on_both_lanes(), ::testing::ExitedWithCode(86), "");
}

}  // namespace
}  // namespace headrace::test
