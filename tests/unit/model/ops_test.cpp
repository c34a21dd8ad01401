// Every operation against a plain double-precision version; the backward ones against its numeric derivative.
#include <gtest/gtest.h>

#include "headrace/errors.h"
#include "tests/unit/model/ops_harness.h"

namespace headrace::testing {
namespace {

double tolerance_of(DType dtype) {
  return dtype == DType::f32 ? 2e-5 : dtype == DType::bf16 ? 2e-2 : 2.5e-3;
}

void expect_near(const Array& actual, const Reals& expected, double tolerance, const char* what) {
  ASSERT_EQ(actual.numel(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(actual.at(i), expected[i], tolerance * (1 + std::abs(expected[i]))) << what << " " << i;
}

class OpsOfType : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
  double tolerance() const { return tolerance_of(dtype()); }
};
INSTANTIATE_TEST_SUITE_P(Types, OpsOfType, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& param) { return std::string(name_of(param.param)); });

void check_matmul(OpsRun& run, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k,
                  Transpose transpose) {
  Array a = hashed_array(dtype, at(m * k), 1), b = hashed_array(dtype, at(k * n), 2),
        bias = hashed_array(dtype, at(n), 3);
  Array c(dtype, at(m * n)), sum = hashed_array(DType::f32, at(m * n), 4);
  const Reals before = sum.reals();
  const bool a_transposed = transpose == Transpose::a, b_transposed = transpose == Transpose::b;
  const Matrix left = a_transposed ? a.as(k, m) : a.as(m, k), right = b_transposed ? b.as(n, k) : b.as(k, n);
  run.ops.matmul(left, right, transpose, bias.data(), c.as(m, n), false);
  run.ops.matmul(left, right, transpose, nullptr, sum.as(m, n), true);
  run.finish();
  Reals product = plain_matmul(a.reals(), b.reals(), m, n, k, a_transposed, b_transposed);
  Reals with_bias = product;
  for (std::size_t i = 0; i < product.size(); ++i) {
    with_bias[i] += bias.at(i % at(n));
    product[i] += before[i];
  }
  expect_near(c, with_bias, tolerance_of(dtype), "product with bias");
  expect_near(sum, product, 1e-4, "accumulated product");
}

TEST_P(OpsOfType, matmul_equals_the_plain_product_for_odd_and_tiled_shapes) {
  OpsRun run;
  for (const Transpose transpose : {Transpose::none, Transpose::a, Transpose::b}) {
    check_matmul(run, dtype(), 1, 1, 1, transpose);
    check_matmul(run, dtype(), 17, 33, 65, transpose);
    check_matmul(run, dtype(), 5, 256, 64, transpose);
    check_matmul(run, dtype(), 517, 301, 1000, transpose);  // four tiles with cut borders
  }
}

TEST(Ops, converted_products_equal_the_plain_product_also_of_many_terms) {
  OpsRun run(2, false);
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Transpose transpose : {Transpose::none, Transpose::a, Transpose::b}) {
      check_matmul(run, dtype, 67, 129, 65, transpose);
      check_matmul(run, dtype, 5, 7, 1024, transpose);
      check_matmul(run, dtype, 5, 7, 1025, transpose);
      check_matmul(run, dtype, 9, 3, 3500, transpose);
    }
}

TEST(Ops, converted_products_take_scratch_memory_that_does_not_grow_with_the_terms) {
  OpsRun run(1, false);
  const auto scratch = [&](std::int64_t terms) {
    return GemmCache(false)
        .get({.m = 96,
              .n = 192,
              .k = terms,
              .a_stride = terms,
              .b_stride = 192,
              .c_stride = 192,
              .input = DType::f16,
              .output = DType::f16})
        .scratch_bytes();
  };
  EXPECT_LT(scratch(50257), scratch(2048) + (Bytes{64} << 10));
}

TEST_P(OpsOfType, layer_norm_and_its_gradients_equal_the_definition) {
  const std::int64_t rows = 131, width = 37;
  Array x = hashed_array(dtype(), at(rows * width), 1, 3), scale = hashed_array(dtype(), at(width), 2);
  Array shift = hashed_array(dtype(), at(width), 3), dy = hashed_array(dtype(), at(rows * width), 4), y = x,
        dx = x;
  Array mean(DType::f32, at(rows)), rstd = mean, dscale = scale, dshift = shift;
  OpsRun run;
  run.ops.layer_norm({.x = x.as(rows, width),
                      .scale = scale.data(),
                      .shift = shift.data(),
                      .y = y.data(),
                      .mean = mean.floats(),
                      .rstd = rstd.floats()});
  run.ops.layer_norm_backward({.dy = dy.as(rows, width),
                               .x = x.data(),
                               .scale = scale.data(),
                               .mean = mean.floats(),
                               .rstd = rstd.floats(),
                               .dx = dx.data(),
                               .dscale = dscale.data(),
                               .dshift = dshift.data()});
  run.finish();
  const Reals gains = scale.reals(), shifts = shift.reals(), input = x.reals(), direction = dy.reals();
  expect_near(y, plain_layer_norm(input, gains, shifts), tolerance(), "y");
  expect_near(
      dscale,
      numeric_gradient(gains, direction, [&](const Reals& v) { return plain_layer_norm(input, v, shifts); }),
      tolerance(), "dscale");
  expect_near(
      dshift,
      numeric_gradient(shifts, direction, [&](const Reals& v) { return plain_layer_norm(input, gains, v); }),
      tolerance(), "dshift");
  for (std::int64_t row = 0; row < rows; row += 26) {  // rows are independent
    const auto slice = [&](const Reals& all) {
      return Reals(all.begin() + row * width, all.begin() + (row + 1) * width);
    };
    const Reals expected = numeric_gradient(
        slice(input), slice(direction), [&](const Reals& v) { return plain_layer_norm(v, gains, shifts); });
    const Array actual(dtype(), slice(dx.reals()));
    expect_near(actual, expected, tolerance(), "dx");
  }
}

TEST_P(OpsOfType, layer_norm_of_a_sum_keeps_the_sum_and_backward_can_add) {
  const std::int64_t rows = 3, width = 48;
  Array x = hashed_array(dtype(), at(rows * width), 1), delta = hashed_array(dtype(), at(rows * width), 2);
  Array scale = hashed_array(dtype(), at(width), 3), shift = scale, sum = x, y = x, fused = x, dx = x,
        added = delta;
  Array mean(DType::f32, at(rows)), rstd = mean, dscale = scale, dshift = scale;
  OpsRun run;
  run.ops.add(x.as(rows, width), delta.data(), sum.data());
  NormArguments forward{.x = sum.as(rows, width),
                        .scale = scale.data(),
                        .shift = shift.data(),
                        .y = y.data(),
                        .mean = mean.floats(),
                        .rstd = rstd.floats()};
  run.ops.layer_norm(forward);
  Array fused_sum(dtype(), sum.numel());
  forward.x = x.as(rows, width);
  forward.delta = delta.data();
  forward.sum = fused_sum.data();
  forward.y = fused.data();
  run.ops.layer_norm(forward);
  NormBackwardArguments backward{.dy = y.as(rows, width),
                                 .x = sum.data(),
                                 .scale = scale.data(),
                                 .mean = mean.floats(),
                                 .rstd = rstd.floats(),
                                 .dx = dx.data(),
                                 .dscale = dscale.data(),
                                 .dshift = dshift.data()};
  run.ops.layer_norm_backward(backward);
  backward.dx = added.data();
  backward.add_to_dx = true;
  run.ops.layer_norm_backward(backward);
  run.finish();
  EXPECT_EQ(fused_sum.bytes(), sum.bytes());
  EXPECT_EQ(fused.bytes(), y.bytes());
  Reals expected = dx.reals();
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += delta.at(i);
  expect_near(added, expected, tolerance(), "sum of gradients");
}

TEST_P(OpsOfType, rms_norm_and_its_gradients_equal_the_definition) {
  const std::int64_t rows = 131, width = 37;
  const float epsilon = 0.01f;
  Array x = hashed_array(dtype(), at(rows * width), 1, 3), scale = hashed_array(dtype(), at(width), 2);
  Array dy = hashed_array(dtype(), at(rows * width), 4), y = x, dx = x, added = dy;
  Array rstd(DType::f32, at(rows)), dscale = scale;
  OpsRun run;
  run.ops.rms_norm({.x = x.as(rows, width),
                    .scale = scale.data(),
                    .y = y.data(),
                    .rstd = rstd.floats(),
                    .epsilon = epsilon});
  NormBackwardArguments backward{.dy = dy.as(rows, width),
                                 .x = x.data(),
                                 .scale = scale.data(),
                                 .rstd = rstd.floats(),
                                 .dx = dx.data(),
                                 .dscale = dscale.data()};
  run.ops.rms_norm_backward(backward);
  backward.dx = added.data();
  backward.add_to_dx = true;
  run.ops.rms_norm_backward(backward);
  run.finish();
  const Reals gains = scale.reals(), input = x.reals(),
              direction = hashed_array(dtype(), y.numel(), 4).reals();
  expect_near(y, plain_rms_norm(input, gains, 0.01), tolerance(), "y");
  expect_near(
      dscale,
      numeric_gradient(gains, direction, [&](const Reals& v) { return plain_rms_norm(input, v, 0.01); }),
      tolerance(), "dscale");
  for (std::int64_t row = 0; row < rows; row += 26) {  // rows are independent
    const auto slice = [&](const Reals& all) {
      return Reals(all.begin() + row * width, all.begin() + (row + 1) * width);
    };
    Reals expected = numeric_gradient(slice(input), slice(direction),
                                      [&](const Reals& v) { return plain_rms_norm(v, gains, 0.01); });
    expect_near(Array(dtype(), slice(dx.reals())), expected, tolerance(), "dx");
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += slice(direction)[i];
    expect_near(Array(dtype(), slice(added.reals())), expected, tolerance(), "sum of gradients");
  }
}

TEST_P(OpsOfType, rms_norm_of_a_sum_keeps_the_sum) {
  const std::int64_t rows = 3, width = 48;
  Array x = hashed_array(dtype(), at(rows * width), 1), delta = hashed_array(dtype(), at(rows * width), 2);
  Array scale = hashed_array(dtype(), at(width), 3), sum = x, y = x, fused_sum = x, fused = x;
  Array rstd(DType::f32, at(rows));
  OpsRun run;
  run.ops.add(x.as(rows, width), delta.data(), sum.data());
  run.ops.rms_norm({.x = sum.as(rows, width), .scale = scale.data(), .y = y.data(), .rstd = rstd.floats()});
  run.ops.rms_norm({.x = x.as(rows, width),
                    .delta = delta.data(),
                    .sum = fused_sum.data(),
                    .scale = scale.data(),
                    .y = fused.data(),
                    .rstd = rstd.floats()});
  run.finish();
  EXPECT_EQ(fused_sum.bytes(), sum.bytes());
  EXPECT_EQ(fused.bytes(), y.bytes());
}

TEST_P(OpsOfType, swiglu_and_its_gradient_equal_the_definition_also_far_from_zero) {
  const std::int64_t rows = 19, width = 53;
  Array hidden = hashed_array(dtype(), at(rows * 2 * width), 1, 6),
        dy = hashed_array(dtype(), at(rows * width), 2);
  hidden.set(0, 80), hidden.set(1, -80), hidden.set(2, 0);
  const Reals input = hidden.reals(), direction = dy.reals();
  Array y = dy;
  OpsRun run;
  run.ops.swiglu(hidden.as(rows, 2 * width), y.data());
  run.ops.swiglu_backward(hidden.as(rows, 2 * width), dy.data());
  run.finish();
  expect_near(y, plain_swiglu(input, at(width)), tolerance(), "y");
  expect_near(hidden,
              numeric_gradient(input, direction, [&](const Reals& v) { return plain_swiglu(v, at(width)); }),
              tolerance(), "dhidden");
  EXPECT_EQ(dy.bytes(), y.bytes());
}

TEST_P(OpsOfType, rotary_turns_queries_and_keys_by_their_position_and_backward_turns_back) {
  const AttentionShape shape{
      .batch = 2, .sequence = 70, .heads = 3, .width = 3 * 38, .dtype = dtype(), .key_heads = 1};
  const std::size_t numel = at(shape.batch * shape.sequence * shape.qkv_width());
  Array qkv = hashed_array(dtype(), numel, 1), gradient = qkv;
  const Reals input = qkv.reals();
  OpsRun run;
  run.ops.rotary(shape, 500.0f, qkv.data(), 0);
  run.ops.rotary_backward(shape, 500.0f, gradient.data());
  run.finish();
  expect_near(qkv, plain_rotary(shape, 500.0, input), tolerance(), "turned");
  expect_near(Array(dtype(), plain_rotary(shape, 500.0, gradient.reals())), input, tolerance(),
              "turned back");
}

TEST_P(OpsOfType, gelu_and_its_gradient_equal_the_definition_also_far_from_zero) {
  Array x = hashed_array(dtype(), 1003, 1, 6), d = hashed_array(dtype(), 1003, 2), y = x, again = x;
  x.set(0, 100), x.set(1, -100), x.set(2, 0);
  const Reals direction = d.reals();
  OpsRun run;
  run.ops.gelu(x.as(17, 59), y.data());
  run.ops.gelu_backward(x.as(17, 59), d.data(), again.data());
  run.finish();
  for (std::size_t i = 0; i < x.numel(); ++i) {
    const double value = x.at(i), slope = (plain_gelu(value + 1e-5) - plain_gelu(value - 1e-5)) / 2e-5;
    ASSERT_NEAR(y.at(i), plain_gelu(value), tolerance() * (1 + std::abs(value))) << value;
    ASSERT_NEAR(d.at(i), slope * direction[i], tolerance()) << value;
  }
  EXPECT_EQ(y.bytes(), again.bytes());
}

TEST_P(OpsOfType, column_sums_equal_the_sums) {
  Array x = hashed_array(dtype(), 203 * 19, 1), sums(dtype(), 19);
  OpsRun run;
  run.ops.column_sums(x.as(203, 19), sums.data());
  run.finish();
  Reals expected(19);
  for (std::size_t i = 0; i < x.numel(); ++i) expected[i % 19] += x.at(i);
  expect_near(sums, expected, tolerance(), "sum");
}

void check_attention(OpsRun& run, const AttentionShape& shape) {
  const std::size_t numel = at(shape.batch * shape.sequence * shape.width);
  const std::size_t qkv_numel = at(shape.batch * shape.sequence * shape.qkv_width());
  Array qkv = hashed_array(shape.dtype, qkv_numel, 1, 2), output(shape.dtype, numel),
        dqkv(shape.dtype, qkv_numel);
  Array dout = hashed_array(shape.dtype, numel, 2),
        log_sums(DType::f32, at(shape.batch * shape.heads * shape.sequence));
  run.ops.attention(shape, qkv.data(), output.data(), log_sums.floats());
  run.ops.attention_backward(shape, qkv.data(), output.data(), dout.data(), log_sums.floats(), dqkv.data());
  run.finish();
  const double tolerance = shape.dtype == DType::f32 ? 2e-5 : shape.dtype == DType::bf16 ? 4e-2 : 5e-3;
  expect_near(output, plain_attention(shape, qkv.reals()), tolerance, "output");
  const Reals expected =
      numeric_gradient(qkv.reals(), dout.reals(), [&](const Reals& v) { return plain_attention(shape, v); });
  expect_near(dqkv, expected, tolerance, "dqkv");
}

TEST_P(OpsOfType, attention_and_its_gradient_equal_the_definition) {
  OpsRun run;
  check_attention(run, {.batch = 1, .sequence = 1, .heads = 1, .width = 4, .dtype = dtype()});
  check_attention(run, {.batch = 2, .sequence = 7, .heads = 3, .width = 24, .dtype = dtype()});
  check_attention(run, {.batch = 1, .sequence = 19, .heads = 1, .width = 5, .dtype = dtype()});
}

TEST_P(OpsOfType, attention_with_shared_heads_of_keys_and_its_gradient_equal_the_definition) {
  OpsRun run;
  check_attention(run,
                  {.batch = 2, .sequence = 7, .heads = 6, .width = 24, .dtype = dtype(), .key_heads = 2});
  check_attention(run,
                  {.batch = 1, .sequence = 9, .heads = 4, .width = 20, .dtype = dtype(), .key_heads = 1});
}

// Rows [first, first + count) of each sample of a qkv.
Array rows_of_samples(const Array& qkv, const AttentionShape& whole, std::int64_t first, std::int64_t count) {
  const std::int64_t width = whole.qkv_width();
  Array part(whole.dtype, at(whole.batch * count * width));
  for (std::int64_t b = 0; b < whole.batch; ++b)
    for (std::int64_t i = 0; i < count * width; ++i)
      part.set(at(b * count * width + i),
               static_cast<float>(qkv.at(at((b * whole.sequence + first) * width + i))));
  return part;
}

// In pieces, each behind those before it, against the definition over all rows.
void check_cached_attention(OpsRun& run, const AttentionShape& whole,
                            const std::vector<std::int64_t>& pieces) {
  Array qkv = hashed_array(whole.dtype, at(whole.batch * whole.sequence * whole.qkv_width()), 1, 2);
  const Reals expected = plain_attention(whole, qkv.reals());
  const auto capacity = static_cast<std::int64_t>(
      round_up(static_cast<Bytes>(whole.sequence), static_cast<Bytes>(cache_rows_multiple)));
  Array rows(whole.dtype, at(whole.batch * capacity * whole.cached_width()));
  KeyValueCache cache{.rows = rows.data(), .capacity = capacity};
  for (const std::int64_t count : pieces) {
    AttentionShape shape = whole;
    shape.sequence = count;
    Array part = rows_of_samples(qkv, whole, cache.used, count),
          output(whole.dtype, at(whole.batch * count * whole.width));
    run.ops.cached_attention(shape, part.data(), cache, output.data());
    run.finish();
    Reals mine;
    for (std::int64_t b = 0; b < whole.batch; ++b) {
      const auto from = expected.begin() + (b * whole.sequence + cache.used) * whole.width;
      mine.insert(mine.end(), from, from + count * whole.width);
    }
    const double tolerance = whole.dtype == DType::f32 ? 2e-5 : whole.dtype == DType::bf16 ? 4e-2 : 5e-3;
    expect_near(output, mine, tolerance, "output");
    cache.used += count;
  }
}

TEST_P(OpsOfType, cached_attention_in_pieces_equals_the_definition_over_all_rows) {
  OpsRun run;
  check_cached_attention(run, {.batch = 1, .sequence = 3, .heads = 1, .width = 4, .dtype = dtype()},
                         {1, 1, 1});
  check_cached_attention(run, {.batch = 3, .sequence = 64, .heads = 3, .width = 24, .dtype = dtype()},
                         {13, 50, 1});
  check_cached_attention(
      run, {.batch = 2, .sequence = 203, .heads = 6, .width = 30, .dtype = dtype(), .key_heads = 2},
      {65, 1, 136, 1});
}

TEST(Ops, a_row_more_than_the_cache_has_room_for_is_refused) {
  OpsRun run;
  EXPECT_THROW(run.ops.cached_attention({.batch = 1, .sequence = 2, .heads = 1, .width = 4}, nullptr,
                                        {.rows = nullptr, .capacity = 64, .used = 63}, nullptr),
               std::logic_error);
}

TEST_P(OpsOfType, rotary_from_a_later_position_turns_as_behind_the_earlier_ones) {
  const AttentionShape whole{
      .batch = 2, .sequence = 9, .heads = 4, .width = 24, .dtype = dtype(), .key_heads = 2};
  Array qkv = hashed_array(dtype(), at(whole.batch * whole.sequence * whole.qkv_width()), 1, 2);
  AttentionShape shape = whole;
  shape.sequence = 4;
  Array part = rows_of_samples(qkv, whole, 5, 4);
  OpsRun run;
  run.ops.rotary(whole, 100.0f, qkv.data(), 0);
  run.ops.rotary(shape, 100.0f, part.data(), 5);
  run.finish();
  EXPECT_EQ(part.bytes(), rows_of_samples(qkv, whole, 5, 4).bytes());
}

TEST(Ops, converted_bf16_attention_equals_the_definition) {
  OpsRun run(2, false);
  check_attention(run, {.batch = 1, .sequence = 6, .heads = 2, .width = 12, .dtype = DType::bf16});
}

// Long enough for several query tiles: fp32 against the definition, its gradient by the identity that follows
// from softmax's invariance, and bf16 against fp32.
TEST_P(OpsOfType, attention_over_several_query_tiles_equals_the_definition) {
  const AttentionShape shape{.batch = 1, .sequence = 300, .heads = 2, .width = 32, .dtype = dtype()};
  const std::size_t numel = at(shape.sequence * shape.width);
  Array qkv = hashed_array(dtype(), 3 * numel, 1, 2), output(dtype(), numel), dqkv(dtype(), 3 * numel);
  Array dout = hashed_array(dtype(), numel, 2), log_sums(DType::f32, 600);
  OpsRun run;
  run.ops.attention(shape, qkv.data(), output.data(), log_sums.floats());
  run.ops.attention_backward(shape, qkv.data(), output.data(), dout.data(), log_sums.floats(), dqkv.data());
  run.finish();
  const double tolerance = dtype() == DType::f32 ? 5e-5 : dtype() == DType::bf16 ? 4e-2 : 5e-3;
  const Reals input = qkv.reals();
  expect_near(output, plain_attention(shape, input), tolerance, "output");
  const auto value = [&](const Reals& v) {
    const Reals y = plain_attention(shape, v);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dout.at(i);
    return sum;
  };
  for (const std::size_t i :
       {0ul, 33ul, 70ul, 127ul * 96 + 40, 128ul * 96 + 3, 128ul * 96 + 80, 256ul * 96 + 64, 299ul * 96}) {
    Reals above = input, below = input;
    above[i] += 1e-4, below[i] -= 1e-4;
    const double expected = (value(above) - value(below)) / 2e-4;
    EXPECT_NEAR(dqkv.at(i), expected, tolerance * (1 + std::abs(expected))) << i;
  }
}

TEST_P(OpsOfType, cross_entropy_and_its_gradient_equal_the_definition) {
  const std::int64_t rows = 6, vocabulary = 101;
  Array logits = hashed_array(DType::f32, at(rows * vocabulary), 1, 8), dlogits(dtype(), logits.numel());
  std::vector<double> losses(at(rows));
  std::vector<std::int32_t> ids{0, 100, 7, 7, 0, 3, 99, 1};  // 2 samples of 3 tokens and the last target
  OpsRun run;
  run.ops.cross_entropy({.logits = logits.floats(),
                         .tokens = {ids.data(), 2, 3, vocabulary},
                         .first_row = 0,
                         .rows = rows,
                         .losses = losses.data(),
                         .dlogits = dlogits.data(),
                         .dtype = dtype(),
                         .gradient_factor = 0.5f});
  float mean = 0;
  run.ops.mean_loss(losses.data(), rows, &mean);
  run.finish();
  const std::vector<std::size_t> targets{100, 7, 7, 3, 99, 1};
  double total = 0;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    double sum = 0;
    for (std::size_t v = 0; v < at(vocabulary); ++v) sum += std::exp(logits.at(r * at(vocabulary) + v));
    const double loss = std::log(sum) - logits.at(r * at(vocabulary) + targets[r]);
    total += loss;
    EXPECT_NEAR(losses[r], loss, 1e-5);
    for (std::size_t v = 0; v < at(vocabulary); ++v) {
      const double expected =
          (std::exp(logits.at(r * at(vocabulary) + v)) / sum - (v == targets[r] ? 1 : 0)) * 0.5;
      ASSERT_NEAR(dlogits.at(r * at(vocabulary) + v), expected, tolerance() * 0.2);
    }
  }
  EXPECT_NEAR(mean, total / 6, 1e-5);
}

TEST_P(OpsOfType, embedding_backward_adds_every_use_to_the_tied_gradient_and_rounds_once) {
  const std::int64_t vocabulary = 5, width = 300, positions = 4;
  Array wte = hashed_array(dtype(), at(vocabulary * width), 1),
        wpe = hashed_array(dtype(), at(positions * width), 2);
  Array x(dtype(), at(6 * width)), dwte(dtype(), wte.numel()), dwpe(dtype(), wpe.numel());
  Array tied = hashed_array(DType::f32, wte.numel(), 3), dx = hashed_array(dtype(), x.numel(), 4);
  const std::vector<std::int32_t> ids{2, 2, 0, 1, 4, 2, 2, 3};
  const TokenBatch tokens{ids.data(), 2, 3, vocabulary};
  OpsRun run;
  run.ops.embedding(tokens, wte.as(vocabulary, width), wpe.as(positions, width), x.data());
  run.ops.embedding_backward(tokens, dx.data(), tied.floats(), dwte.as(vocabulary, width),
                             dwpe.as(positions, width));
  run.finish();
  Reals expected = tied.reals(), positional(wpe.numel()), forward(x.numel());
  const std::vector<std::size_t> inputs{2, 2, 0, 4, 2, 2};
  for (std::size_t r = 0; r < 6; ++r)
    for (std::size_t c = 0; c < at(width); ++c) {
      expected[inputs[r] * at(width) + c] += dx.at(r * at(width) + c);
      positional[r % 3 * at(width) + c] += dx.at(r * at(width) + c);
      forward[r * at(width) + c] = wte.at(inputs[r] * at(width) + c) + wpe.at(r % 3 * at(width) + c);
    }
  const double once = dtype() == DType::f32 ? 1e-6 : dtype() == DType::bf16 ? 0x1p-8 : 0x1p-11;
  expect_near(dwte, expected, once, "dwte");
  expect_near(dwpe, positional, once, "dwpe");
  expect_near(x, forward, once, "x");
}

TEST_P(OpsOfType, embedding_without_positions_copies_the_rows_of_the_tokens) {
  const std::int64_t vocabulary = 5, width = 33;
  Array table = hashed_array(dtype(), at(vocabulary * width), 1), x(dtype(), at(3 * width)), dtable = table;
  const std::vector<std::int32_t> ids{4, 0, 4, 1};
  const TokenBatch tokens{ids.data(), 1, 3, vocabulary};
  OpsRun run;
  run.ops.embedding(tokens, table.as(vocabulary, width), Matrix{}, x.data());
  run.ops.embedding_backward(tokens, x.data(), nullptr, dtable.as(vocabulary, width), Matrix{});
  run.finish();
  for (std::size_t c = 0; c < at(width); ++c) {
    for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(x.at(r * at(width) + c), table.at(at(ids[r] * width) + c));
    EXPECT_EQ(dtable.at(4 * at(width) + c), 2 * table.at(4 * at(width) + c));
    EXPECT_EQ(dtable.at(at(width) + c), 0);
  }
}

TEST(Ops, token_outside_the_vocabulary_is_an_error_naming_it) {
  Array table(DType::f32, 8), x(DType::f32, 4);
  for (const std::int32_t bad : {-1, 4}) {
    OpsRun run;
    const std::vector<std::int32_t> ids{0, bad, 0};
    run.ops.embedding({ids.data(), 1, 2, 4}, table.as(4, 2), table.as(4, 2), x.data());
    try {
      run.finish();
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(bad)), std::string::npos) << error.what();
    }
  }
}

TEST(Ops, scratch_memory_is_charged_and_given_back) {
  OpsRun run;
  Array a(DType::bf16, 512 * 512), c(DType::bf16, 512 * 512);
  run.ops.matmul(a.as(512, 512), a.as(512, 512), Transpose::a, nullptr, c.as(512, 512), false);
  run.ops.column_sums(a.as(512, 512), c.data());
  run.finish();
  EXPECT_GT(run.budget.peak()[MemoryTag::workspace], 0u);
  EXPECT_EQ(run.budget.current().total(), 0u);
}

}  // namespace
}  // namespace headrace::testing
