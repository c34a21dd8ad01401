// Layer norm and RMS norm on a CUDA device against plain double-precision versions.
#include "gpu/norm_kernels.h"

#include <functional>
#include <ostream>

#include "tests/gpu/gpu_harness.h"

namespace headrace::test {
namespace {

using Reals = std::vector<double>;

// ---- The oracle, of one row

constexpr double epsilon = 1e-5;

struct Statistics {
  double mean = 0, rstd = 0;
};
Statistics statistics_of(const Reals& x, bool centred) {
  const auto width = static_cast<double>(x.size());
  Statistics s;
  double squares = 0;
  if (centred)
    for (const double value : x) s.mean += value / width;
  for (const double value : x) squares += (value - s.mean) * (value - s.mean);
  s.rstd = 1 / std::sqrt(squares / width + epsilon);
  return s;
}

Reals norm_of(const Reals& x, const Reals& scale, const Reals& shift, bool centred) {
  const Statistics s = statistics_of(x, centred);
  Reals y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = (x[i] - s.mean) * s.rstd * scale[i] + (centred ? shift[i] : 0);
  return y;
}

// Of sum(norm_of(x) * dy): derivatives of the formula, term by term (y depends on x, the mean and rstd).
Reals gradient_of(const Reals& x, const Reals& scale, const Reals& dy, bool centred) {
  const Statistics s = statistics_of(x, centred);
  const auto width = static_cast<double>(x.size());
  double to_mean = 0, to_rstd = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    to_rstd += dy[i] * scale[i] * (x[i] - s.mean);
    if (centred) to_mean -= dy[i] * scale[i] * s.rstd;
  }
  Reals dx(x.size());
  for (std::size_t j = 0; j < x.size(); ++j) {
    const double rstd_by_x = -std::pow(s.rstd, 3) * (x[j] - s.mean) / width;
    dx[j] = dy[j] * scale[j] * s.rstd + to_mean / width + to_rstd * rstd_by_x;
  }
  return dx;
}

TEST(NormOracle, gradients_are_the_slopes_of_the_norm) {
  const std::vector<float> seeds = ordinary(4 * 9, 3);
  const auto part = [&](int k) { return Reals(seeds.begin() + k * 9, seeds.begin() + (k + 1) * 9); };
  const Reals x = part(0), scale = part(1), shift = part(2), dy = part(3);
  for (const bool centred : {true, false}) {
    const auto value = [&](const Reals& at) {
      double sum = 0;
      const Reals y = norm_of(at, scale, shift, centred);
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
      return sum;
    };
    const Reals gradient = gradient_of(x, scale, dy, centred);
    for (std::size_t i = 0; i < x.size(); ++i) {
      Reals above = x, below = x;
      above[i] += 1e-5, below[i] -= 1e-5;
      EXPECT_NEAR(gradient[i], (value(above) - value(below)) / 2e-5, 1e-7);
    }
  }
}

// ---- Cases

struct Shape {
  std::int64_t rows, width;
};
// Odd ones, and whole vectors for teams of a warp (up to 1024) and of a block.
constexpr Shape shapes[] = {{0, 33}, {1, 1},   {3, 33},   {257, 33}, {3, 1027}, {257, 1},
                            {5, 64}, {9, 768}, {3, 1024}, {3, 1032}, {2, 4096}};

// An offset on a border of 16 bytes or off it, for any element type.
std::size_t offset_of(bool aligned, DType dtype) {
  return aligned ? 0 : size_of(dtype);
}

std::size_t numel_of(const Shape& s) {
  return static_cast<std::size_t>(s.rows * s.width);
}

Reals row_of(const std::vector<float>& values, std::int64_t row, std::int64_t width) {
  return Reals(values.begin() + row * width, values.begin() + (row + 1) * width);
}

class NormKernels : public GpuTest {};

// ---- Forward

struct ForwardCase {
  Shape shape;
  DType dtype;
  bool centred, with_delta;
  std::vector<float> x, delta, scale, shift;
};

ForwardCase forward_case(const Shape& shape, DType dtype, bool centred, bool with_delta) {
  const auto width = static_cast<std::size_t>(shape.width);
  ForwardCase c{shape, dtype, centred, with_delta, {}, {}, {}, {}};
  c.x = rounded(dtype, ordinary(numel_of(shape), 1));
  for (float& x : c.x) x += 0.5f;
  c.x = rounded(dtype, c.x);
  c.delta = rounded(dtype, ordinary(with_delta ? numel_of(shape) : 0, 2));
  c.scale = rounded(dtype, ordinary(width, 3));
  c.shift = rounded(dtype, ordinary(width, 4));
  return c;
}

struct Forward {
  std::vector<float> sum, y, mean, rstd;
  bool operator==(const Forward&) const = default;
};

Forward forward(Device& device, KernelQueue& queue, const ForwardCase& c, bool aligned) {
  const std::size_t at = offset_of(aligned, c.dtype);
  const auto rows = static_cast<std::size_t>(c.shape.rows);
  const Operand x(device, c.dtype, c.x, at), delta(device, c.dtype, c.delta, at);
  const Operand scale(device, c.dtype, c.scale, at), shift(device, c.dtype, c.shift, at);
  const Operand sum(device, c.dtype, std::vector<float>(c.delta.size()), at);
  const Operand y(device, c.dtype, std::vector<float>(c.x.size()), at);
  const Operand mean(device, std::vector<float>(rows)), rstd(device, std::vector<float>(rows));
  const Matrix in{x.data(), c.dtype, c.shape.rows, c.shape.width, c.shape.width};
  std::byte* const delta_or_null = c.with_delta ? delta.data() : nullptr;
  std::byte* const sum_or_null = c.with_delta ? sum.data() : nullptr;
  if (c.centred) {
    layer_norm(queue, {.x = in,
                       .delta = delta_or_null,
                       .sum = sum_or_null,
                       .scale = scale.data(),
                       .shift = shift.data(),
                       .y = y.data(),
                       .mean = mean.data<float>(),
                       .rstd = rstd.data<float>()});
  } else {
    rms_norm(queue, {.x = in,
                     .delta = delta_or_null,
                     .sum = sum_or_null,
                     .scale = scale.data(),
                     .y = y.data(),
                     .rstd = rstd.data<float>(),
                     .epsilon = static_cast<float>(epsilon)});
  }
  return {sum.values_of(c.dtype), y.values_of(c.dtype), mean.values<float>(), rstd.values<float>()};
}

void check_forward(const ForwardCase& c, const Forward& result) {
  std::vector<float> normalised = c.x;
  if (c.with_delta) {
    for (std::size_t i = 0; i < normalised.size(); ++i) normalised[i] += c.delta[i];
    normalised = rounded(c.dtype, normalised);
    ASSERT_EQ(result.sum, normalised);
  }
  const Reals scale(c.scale.begin(), c.scale.end()), shift(c.shift.begin(), c.shift.end());
  for (std::int64_t row = 0; row < c.shape.rows; ++row) {
    const Reals x = row_of(normalised, row, c.shape.width);
    const Reals wanted = norm_of(x, scale, shift, c.centred);
    const Reals y = row_of(result.y, row, c.shape.width);
    for (std::size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(y[i], wanted[i], tolerance(c.dtype, wanted[i])) << "row " << row << ", column " << i;
    const Statistics s = statistics_of(x, c.centred);
    const auto r = static_cast<std::size_t>(row);
    ASSERT_NEAR(result.mean[r], s.mean, 1e-6);  // 0 of an RMS norm, which writes none
    ASSERT_NEAR(result.rstd[r], s.rstd, 1e-5 * s.rstd);
  }
}

TEST_F(NormKernels, forward_is_near_the_formula_and_its_bits_do_not_depend_on_alignment) {
  for (const Shape& shape : shapes) {
    for (const DType dtype : element_types) {
      for (const bool centred : {true, false}) {
        for (const bool with_delta : {false, true}) {
          SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.width << ' ' << name_of(dtype)
                                          << ", centred " << centred << ", delta " << with_delta);
          const ForwardCase c = forward_case(shape, dtype, centred, with_delta);
          const Forward result = forward(*device, queue(), c, true);
          check_forward(c, result);
          ASSERT_TRUE(forward(*device, queue(), c, false) == result) << "depends on alignment";
        }
      }
    }
  }
}

TEST_F(NormKernels, more_rows_than_a_grid_has_teams_are_taken_in_turn) {
  for (const Shape& shape : {Shape{1027, 1025}, Shape{8195, 1}}) {
    const ForwardCase c = forward_case(shape, DType::f32, false, false);
    check_forward(c, forward(*device, queue(), c, true));
  }
}

TEST_F(NormKernels, a_row_without_spread_is_shifted_alone) {
  ForwardCase c = forward_case({3, 33}, DType::f32, true, false);
  c.x.assign(c.x.size(), 7.0f);
  const Forward result = forward(*device, queue(), c, true);
  for (std::size_t i = 0; i < c.x.size(); ++i) EXPECT_EQ(result.y[i], c.shift[i % 33]);
  for (const float rstd : result.rstd) EXPECT_NEAR(rstd, 1 / std::sqrt(1e-5), 1e-3);
}

TEST_F(NormKernels, a_value_that_is_not_finite_stays_in_its_row) {
  for (const bool centred : {true, false}) {
    ForwardCase c = forward_case({3, 33}, DType::bf16, centred, false);
    c.x[33 + 5] = std::numeric_limits<float>::quiet_NaN();
    const Forward result = forward(*device, queue(), c, true);
    for (std::size_t i = 0; i < c.x.size(); ++i) EXPECT_EQ(std::isnan(result.y[i]), i / 33 == 1) << i;
  }
}

// ---- Backward

struct BackwardCase {
  Shape shape;
  DType dtype;
  bool centred, add_to_dx;
  std::vector<float> dy, x, scale, mean, rstd, dx;
};

BackwardCase backward_case(const Shape& shape, DType dtype, bool centred, bool add_to_dx) {
  BackwardCase c{shape, dtype, centred, add_to_dx, {}, {}, {}, {}, {}, {}};
  c.dy = rounded(dtype, ordinary(numel_of(shape), 5));
  c.x = rounded(dtype, ordinary(numel_of(shape), 6));
  c.dx = rounded(dtype, ordinary(numel_of(shape), 7));
  c.scale = rounded(dtype, ordinary(static_cast<std::size_t>(shape.width), 8));
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const Statistics s = statistics_of(row_of(c.x, row, shape.width), centred);
    c.mean.push_back(static_cast<float>(s.mean));
    c.rstd.push_back(static_cast<float>(s.rstd));
  }
  return c;
}

struct Backward {
  std::vector<float> dx, dscale, dshift;
  bool operator==(const Backward&) const = default;
};

Backward backward(Device& device, KernelQueue& queue, const BackwardCase& c, bool aligned,
                  bool in_place = false) {
  const std::size_t at = offset_of(aligned, c.dtype);
  const auto width = static_cast<std::size_t>(c.shape.width);
  const Operand dy(device, c.dtype, c.dy, at), x(device, c.dtype, c.x, at), dx(device, c.dtype, c.dx, at);
  const Operand scale(device, c.dtype, c.scale, at), mean(device, c.mean), rstd(device, c.rstd);
  const Operand dscale(device, c.dtype, std::vector<float>(width, 9.0f), at);
  const Operand dshift(device, c.dtype, std::vector<float>(width, 9.0f), at);
  const Bytes bytes = c.centred ? layer_norm_backward_scratch_bytes(c.shape.rows, c.shape.width)
                                : rms_norm_backward_scratch_bytes(c.shape.rows, c.shape.width);
  const Operand scratch(device, std::vector<std::byte>(bytes), 4);
  const Matrix gradient{dy.data(), c.dtype, c.shape.rows, c.shape.width, c.shape.width};
  const Operand& result = in_place ? dy : dx;
  if (c.centred) {
    layer_norm_backward(queue,
                        {.dy = gradient,
                         .x = x.data(),
                         .scale = scale.data(),
                         .mean = mean.data<float>(),
                         .rstd = rstd.data<float>(),
                         .dx = result.data(),
                         .add_to_dx = c.add_to_dx,
                         .dscale = dscale.data(),
                         .dshift = dshift.data()},
                        scratch.data<float>());
  } else {
    rms_norm_backward(queue,
                      {.dy = gradient,
                       .x = x.data(),
                       .scale = scale.data(),
                       .rstd = rstd.data<float>(),
                       .dx = result.data(),
                       .add_to_dx = c.add_to_dx,
                       .dscale = dscale.data()},
                      scratch.data<float>());
  }
  return {result.values_of(c.dtype), dscale.values_of(c.dtype), dshift.values_of(c.dtype)};
}

void check_dx(const BackwardCase& c, const Backward& result) {
  const Reals scale(c.scale.begin(), c.scale.end());
  for (std::int64_t row = 0; row < c.shape.rows; ++row) {
    const Reals dx =
        gradient_of(row_of(c.x, row, c.shape.width), scale, row_of(c.dy, row, c.shape.width), c.centred);
    for (std::size_t i = 0; i < dx.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(row * c.shape.width) + i;
      const double wanted = dx[i] + (c.add_to_dx ? c.dx[at] : 0.0);
      // The terms that cancel are as large as rstd * scale * dy.
      const double terms = 1e-6 * (1.0 + c.rstd[static_cast<std::size_t>(row)] * 10.0);
      ASSERT_NEAR(result.dx[at], wanted, terms + tolerance(c.dtype, wanted))
          << "row " << row << ", column " << i;
    }
  }
}

void check_column_gradients(const BackwardCase& c, const Backward& result) {
  for (std::int64_t column = 0; column < c.shape.width; ++column) {
    double dscale = 0, dshift = 0, terms = 0;
    for (std::int64_t row = 0; row < c.shape.rows; ++row) {
      const auto at = static_cast<std::size_t>(row * c.shape.width + column),
                 r = static_cast<std::size_t>(row);
      const double normal = (c.x[at] - static_cast<double>(c.mean[r])) * c.rstd[r];
      dscale += c.dy[at] * normal;
      dshift += c.dy[at];
      terms += std::abs(c.dy[at] * normal) + std::abs(c.dy[at]);
    }
    const auto i = static_cast<std::size_t>(column);
    ASSERT_NEAR(result.dscale[i], dscale, 1e-6 * terms + tolerance(c.dtype, dscale)) << "column " << column;
    if (!c.centred) continue;
    ASSERT_NEAR(result.dshift[i], dshift, 1e-6 * terms + tolerance(c.dtype, dshift)) << "column " << column;
  }
}

TEST_F(NormKernels, backward_is_near_the_derivative_and_its_bits_do_not_depend_on_alignment) {
  for (const Shape& shape : shapes) {
    for (const DType dtype : element_types) {
      for (const bool centred : {true, false}) {
        for (const bool add_to_dx : {false, true}) {
          SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.width << ' ' << name_of(dtype)
                                          << ", centred " << centred << ", add " << add_to_dx);
          const BackwardCase c = backward_case(shape, dtype, centred, add_to_dx);
          const Backward result = backward(*device, queue(), c, true);
          check_dx(c, result);
          check_column_gradients(c, result);
          ASSERT_TRUE(backward(*device, queue(), c, false) == result) << "depends on alignment";
        }
      }
    }
  }
}

TEST_F(NormKernels, dx_may_take_the_place_of_dy) {
  for (const bool centred : {true, false}) {
    const BackwardCase c = backward_case({67, 33}, DType::bf16, centred, false);
    EXPECT_TRUE(backward(*device, queue(), c, true, true) == backward(*device, queue(), c, true));
  }
}

}  // namespace
}  // namespace headrace::test
