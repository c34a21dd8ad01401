// DESIGN section 9: no operation's result depends on the number of threads, bit by bit; nor on the
// instruction set.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "src/model/row_kernels.h"
#include "tests/unit/model/model_harness.h"
#include "tests/unit/model/ops_harness.h"

namespace headrace::testing {
namespace {

using Outputs = std::vector<std::vector<std::byte>>;

struct Case {
  std::string name;
  std::function<Outputs(OpsRun&)> run;
};

void PrintTo(const Case& item, std::ostream* out) {
  *out << item.name;
}

Case matmul_case(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, Transpose transpose) {
  const char* const layouts[] = {"nn", "tn", "nt"};
  return {fmt::format("matmul_{}_{}x{}x{}_{}", name_of(dtype), m, n, k, layouts[static_cast<int>(transpose)]),
          [=](OpsRun& run) -> Outputs {
            Array a = hashed_array(dtype, at(m * k), 1), b = hashed_array(dtype, at(k * n), 2),
                  c(dtype, at(m * n));
            run.ops.matmul(transpose == Transpose::a ? a.as(k, m) : a.as(m, k),
                           transpose == Transpose::b ? b.as(n, k) : b.as(k, n), transpose, nullptr,
                           c.as(m, n), false);
            run.finish();
            return {c.bytes()};
          }};
}

Case layer_norm_case(DType dtype, std::int64_t rows, std::int64_t width) {
  return {fmt::format("layer_norm_{}_{}x{}", name_of(dtype), rows, width), [=](OpsRun& run) -> Outputs {
            Array x = hashed_array(dtype, at(rows * width), 1), scale = hashed_array(dtype, at(width), 2),
                  y = x, dx = x;
            Array mean(DType::f32, at(rows)), rstd = mean, dscale = scale, dshift = scale, sums = scale;
            run.ops.layer_norm({.x = x.as(rows, width),
                                .scale = scale.data(),
                                .shift = scale.data(),
                                .y = y.data(),
                                .mean = mean.floats(),
                                .rstd = rstd.floats()});
            run.ops.layer_norm_backward({.dy = y.as(rows, width),
                                         .x = x.data(),
                                         .scale = scale.data(),
                                         .mean = mean.floats(),
                                         .rstd = rstd.floats(),
                                         .dx = dx.data(),
                                         .add_to_dx = true,
                                         .dscale = dscale.data(),
                                         .dshift = dshift.data()});
            run.ops.column_sums(y.as(rows, width), sums.data());
            run.finish();
            return {y.bytes(),      mean.bytes(),   rstd.bytes(), dx.bytes(),
                    dscale.bytes(), dshift.bytes(), sums.bytes()};
          }};
}

Case rms_norm_case(DType dtype, std::int64_t rows, std::int64_t width) {
  return {fmt::format("rms_norm_{}_{}x{}", name_of(dtype), rows, width), [=](OpsRun& run) -> Outputs {
            Array x = hashed_array(dtype, at(rows * width), 1), scale = hashed_array(dtype, at(width), 2),
                  y = x, dx = x;
            Array rstd(DType::f32, at(rows)), dscale = scale;
            run.ops.rms_norm(
                {.x = x.as(rows, width), .scale = scale.data(), .y = y.data(), .rstd = rstd.floats()});
            run.ops.rms_norm_backward({.dy = y.as(rows, width),
                                       .x = x.data(),
                                       .scale = scale.data(),
                                       .rstd = rstd.floats(),
                                       .dx = dx.data(),
                                       .add_to_dx = true,
                                       .dscale = dscale.data()});
            run.finish();
            return {y.bytes(), rstd.bytes(), dx.bytes(), dscale.bytes()};
          }};
}

Case swiglu_case(DType dtype, std::int64_t rows, std::int64_t width) {
  return {fmt::format("swiglu_{}_{}x{}", name_of(dtype), rows, width), [=](OpsRun& run) -> Outputs {
            Array hidden = hashed_array(dtype, at(rows * 2 * width), 1, 4),
                  d = hashed_array(dtype, at(rows * width), 2), y = d;
            run.ops.swiglu(hidden.as(rows, 2 * width), y.data());
            run.ops.swiglu_backward(hidden.as(rows, 2 * width), d.data());
            run.finish();
            return {y.bytes(), d.bytes(), hidden.bytes()};
          }};
}

Case rotary_case(const AttentionShape& shape) {
  return {fmt::format("rotary_{}_{}x{}x{}x{}", name_of(shape.dtype), shape.batch, shape.sequence, shape.heads,
                      shape.width),
          [=](OpsRun& run) -> Outputs {
            Array x = hashed_array(shape.dtype, at(shape.batch * shape.sequence * shape.qkv_width()), 1),
                  d = x;
            run.ops.rotary(shape, 10000.0f, x.data(), 0);
            run.ops.rotary_backward(shape, 10000.0f, d.data());
            run.finish();
            return {x.bytes(), d.bytes()};
          }};
}

Case attention_case(const AttentionShape& shape) {
  return {fmt::format("attention_{}_{}x{}x{}_{}x{}", name_of(shape.dtype), shape.batch, shape.sequence,
                      shape.heads, shape.key_heads, shape.width),
          [=](OpsRun& run) -> Outputs {
            const std::size_t numel = at(shape.batch * shape.sequence * shape.width);
            Array qkv = hashed_array(shape.dtype, at(shape.batch * shape.sequence * shape.qkv_width()), 1),
                  output(shape.dtype, numel), dqkv = qkv;
            Array dout = hashed_array(shape.dtype, numel, 2);
            Array log_sums(DType::f32, at(shape.batch * shape.heads * shape.sequence));
            run.ops.attention(shape, qkv.data(), output.data(), log_sums.floats());
            run.ops.attention_backward(shape, qkv.data(), output.data(), dout.data(), log_sums.floats(),
                                       dqkv.data());
            run.finish();
            return {output.bytes(), dqkv.bytes(), log_sums.bytes()};
          }};
}

Case ends_case(DType dtype, std::int64_t batch, std::int64_t sequence, std::int64_t vocabulary,
               std::int64_t width) {
  return {
      fmt::format("embedding_and_loss_{}_{}x{}x{}x{}", name_of(dtype), batch, sequence, vocabulary, width),
      [=](OpsRun& run) -> Outputs {
        const std::int64_t rows = batch * sequence;
        Array wte = hashed_array(dtype, at(vocabulary * width), 1),
              wpe = hashed_array(dtype, at(sequence * width), 2);
        Array x(dtype, at(rows * width)), dwte = wte, dwpe = wpe;
        Array logits = hashed_array(DType::f32, at(rows * vocabulary), 3), dlogits(dtype, logits.numel());
        std::vector<std::int32_t> ids(at(batch * (sequence + 1)));
        for (std::size_t i = 0; i < ids.size(); ++i)
          ids[i] = static_cast<std::int32_t>(splitmix64(i) % static_cast<std::uint64_t>(vocabulary));
        Array losses(DType::f32, 2 * at(rows)), mean(DType::f32, 1);
        const TokenBatch tokens{ids.data(), batch, sequence, vocabulary};
        run.ops.embedding(tokens, wte.as(vocabulary, width), wpe.as(sequence, width), x.data());
        run.ops.embedding_backward(tokens, x.data(), nullptr, dwte.as(vocabulary, width),
                                   dwpe.as(sequence, width));
        run.ops.cross_entropy({.logits = logits.floats(),
                               .tokens = tokens,
                               .rows = rows,
                               .losses = losses.doubles(),
                               .dlogits = dlogits.data(),
                               .dtype = dtype});
        run.ops.mean_loss(losses.doubles(), rows, mean.floats());
        run.finish();
        return {x.bytes(), dwte.bytes(), dwpe.bytes(), dlogits.bytes(), losses.bytes(), mean.bytes()};
      }};
}

Case gelu_case(DType dtype) {
  return {fmt::format("gelu_{}", name_of(dtype)), [=](OpsRun& run) -> Outputs {
            Array x = hashed_array(dtype, 50001, 1, 4), d = hashed_array(dtype, 50001, 2), y = x, again = x,
                  sum = x;
            run.ops.gelu(x.as(1, 50001), y.data());
            run.ops.gelu_backward(x.as(1, 50001), d.data(), again.data());
            run.ops.add(x.as(1, 50001), y.data(), sum.data());
            run.finish();
            return {y.bytes(), d.bytes(), again.bytes(), sum.bytes()};
          }};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    // gpt2-mini, 1024 tokens: forward, input gradient and weight gradient of each product, and the tied head.
    for (const auto& [in, out] : {std::pair{384, 1152}, {384, 384}, {384, 1536}, {1536, 384}, {384, 256}}) {
      all.push_back(matmul_case(dtype, 1024, out, in, Transpose::none));
      all.push_back(matmul_case(dtype, 1024, in, out, Transpose::b));
      all.push_back(matmul_case(dtype, in, out, 1024, Transpose::a));
    }
    all.push_back(
        matmul_case(dtype, 64, 64, 4096, Transpose::a));  // oneDNN splits K here when it has several threads
    all.push_back(matmul_case(dtype, 2048, 64, 2048, Transpose::none));
    all.push_back(matmul_case(dtype, 32, 5025, 768, Transpose::b));
    all.push_back(matmul_case(dtype, 333, 517, 1001, Transpose::a));
    for (const auto& [rows, width] : {std::pair{2048, 384}, {1, 384}, {65, 33}, {257, 770}})
      all.push_back(layer_norm_case(dtype, rows, width)), all.push_back(rms_norm_case(dtype, rows, width));
    all.push_back(attention_case({8, 256, 6, 384, dtype}));
    all.push_back(attention_case({1, 1, 2, 6, dtype}));
    all.push_back(attention_case({3, 301, 3, 51, dtype}));
    all.push_back(attention_case({2, 301, 6, 96, dtype, 2}));
    all.push_back(rotary_case({3, 301, 6, 96, dtype, 2}));
    all.push_back(rotary_case({1, 2, 3, 6, dtype, 1}));
    all.push_back(swiglu_case(dtype, 257, 1024));
    all.push_back(swiglu_case(dtype, 33, 19));
    all.push_back(ends_case(dtype, 8, 64, 256, 384));
    all.push_back(ends_case(dtype, 3, 5, 5025, 33));
    all.push_back(gelu_case(dtype));
  }
  return all;
}

// The pool has as many threads as the device, also where the machine has fewer.
class ThreadContract : public ::testing::TestWithParam<Case> {
 protected:
  ~ThreadContract() override { set_cpu_threads(0); }
  Outputs with_threads(int threads) const {
    set_cpu_threads(threads);
    OpsRun run(threads);
    return GetParam().run(run);
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, ThreadContract, ::testing::ValuesIn(cases()),
                         [](const auto& param) { return param.param.name; });

TEST_P(ThreadContract, results_have_the_same_bits_with_1_2_and_3_threads) {
  const Outputs one = with_threads(1);
  for (const int threads : {2, 3}) {
    const Outputs several = with_threads(threads);
    ASSERT_EQ(one.size(), several.size());
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_TRUE(one[i] == several[i]) << "output " << i << " with " << threads << " threads";
  }
}

TEST(ThreadContractOfModel, loss_and_gradients_have_the_same_bits_with_1_2_and_3_threads) {
  const ModelConfig gpt2{
      .name = "t", .layers = 2, .width = 96, .heads = 3, .vocabulary = 301, .max_positions = 150};
  ModelConfig llama = gpt2;
  llama.family = ModelFamily::llama;
  llama.heads = 6, llama.key_heads = 2, llama.mlp_width = 250;
  for (const ModelConfig& config : {gpt2, llama})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const ModelOptions options{.dtype = dtype, .batch = 3, .sequence = 149};
      std::vector<std::byte> first;
      float first_loss = 0;
      for (const int threads : {1, 2, 3}) {
        set_cpu_threads(threads);
        ModelRun run(config, options, threads);
        const float loss = run.forward_backward(hashed_tokens(0, config, options));
        if (threads == 1) first = run.hooks.all_gradients(), first_loss = loss;
        EXPECT_EQ(loss, first_loss);
        EXPECT_TRUE(run.hooks.all_gradients() == first) << threads << " threads, " << name_of(dtype);
      }
      set_cpu_threads(0);
    }
}

Outputs every_row_kernel(const RowKernels& kernels, DType dtype, std::int64_t width) {
  const std::int64_t rows = 5;
  Array x = hashed_array(dtype, at(rows * width), 1, 5), other = hashed_array(dtype, at(rows * width), 2),
        y = x, sum = x;
  Array scale = hashed_array(dtype, at(width), 3), wide = hashed_array(DType::f32, at(rows * width), 4, 9);
  Array mean(DType::f32, at(rows)), rstd = mean, log_sum = mean, dot = mean, dx = other, d = other, p = x,
                                    dp = x, r = x;
  Array gains(DType::f32, at(width)), shifts = gains, columns = gains, widened = wide, dlogits = x;
  const std::vector<std::int32_t> targets{0, 0, 0, 0, 0};
  Array losses(DType::f32, 2 * at(rows));
  kernels.layer_norm({x.data(), other.data(), sum.data(), scale.data(), scale.data(), y.data(), mean.floats(),
                      rstd.floats(), width},
                     0, rows);
  kernels.layer_norm_backward(
      {y.data(), sum.data(), scale.data(), mean.floats(), rstd.floats(), dx.data(), true, width}, 0, rows,
      gains.floats(), shifts.floats());
  Array active = x;
  kernels.gelu_backward(x.data(), d.data(), active.data(), rows * width);
  Array rms = x, rms_rstd = mean, rms_dx = other, rms_gains(DType::f32, at(width));
  kernels.rms_norm(
      {x.data(), nullptr, nullptr, scale.data(), nullptr, rms.data(), nullptr, rms_rstd.floats(), width}, 0,
      rows);
  kernels.rms_norm_backward(
      {rms.data(), x.data(), scale.data(), nullptr, rms_rstd.floats(), rms_dx.data(), true, width}, 0, rows,
      rms_gains.floats());
  Array gate = x, up = other, gated = other, dgated = sum, turned = other;
  kernels.swiglu(gate.data(), up.data(), gated.data(), rows * width);
  kernels.swiglu_backward(gate.data(), up.data(), dgated.data(), rows * width);
  kernels.rotary(turned.data(), wide.floats(), wide.floats() + width, rows, width / 2 * 2);
  kernels.column_sums(x.data(), rows, width, width, columns.floats());
  kernels.row_dots(x.data(), other.data(), rows, width, width, dot.floats());
  kernels.softmax({wide.floats(), p.data(), log_sum.floats(), 0.3f, 1, width, width, width});
  kernels.softmax_backward({wide.floats(), wide.floats(), log_sum.floats(), dot.floats(), dp.data(), r.data(),
                            0.3f, 1, width, width, width});
  kernels.cross_entropy({wide.floats(), targets.data(), losses.doubles(), dlogits.data(), 0.7f, width}, 0,
                        rows);
  kernels.widen(other.data(), widened.floats(), rows * width);
  return {y.bytes(),      sum.bytes(),       mean.bytes(),    rstd.bytes(), dx.bytes(),
          gains.bytes(),  shifts.bytes(),    active.bytes(),  d.bytes(),    dot.bytes(),
          p.bytes(),      log_sum.bytes(),   dp.bytes(),      r.bytes(),    dlogits.bytes(),
          losses.bytes(), widened.bytes(),   columns.bytes(), rms.bytes(),  rms_rstd.bytes(),
          rms_dx.bytes(), rms_gains.bytes(), gate.bytes(),    up.bytes(),   gated.bytes(),
          dgated.bytes(), turned.bytes()};
}

TEST(RowKernels, every_instruction_set_gives_the_same_bits) {
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    if (!supported(isa)) continue;
    for (const std::int64_t width : {1, 15, 16, 17, 64, 100}) {
      SCOPED_TRACE(fmt::format("{}, width {}", name_of(isa), width));
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        EXPECT_TRUE(every_row_kernel(row_kernels(dtype, isa), dtype, width) ==
                    every_row_kernel(row_kernels(dtype, Isa::scalar), dtype, width))
            << name_of(dtype);
    }
  }
}

// Every fp16 there is, and around each the values where rounding turns over, against the scalar conversions.
TEST(RowKernels, conversions_of_every_fp16_and_of_the_values_between_are_the_scalar_ones) {
  std::vector<fp16> low;
  std::vector<float> high{1e-40f, -1e-39f, 3.4e38f, 0x1p-126f, std::nanf("")};
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    low.push_back({static_cast<std::uint16_t>(bits)});
    const float value = to_float(low.back()), next = to_float(fp16{static_cast<std::uint16_t>(bits + 1)});
    const float middle = value + (next - value) / 2;
    for (const float around : {value, middle, std::nextafterf(middle, next), std::nextafterf(middle, value)})
      high.push_back(around);
  }
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512}) {
    if (!supported(isa)) continue;
    const RowKernels& kernels = row_kernels(DType::f16, isa);
    std::vector<float> widened(low.size());
    kernels.widen(low.data(), widened.data(), static_cast<std::int64_t>(low.size()));
    for (std::size_t i = 0; i < low.size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(widened[i]), std::bit_cast<std::uint32_t>(to_float(low[i])))
          << i;
    std::vector<fp16> rounded(high.size());
    kernels.round(high.data(), rounded.data(), static_cast<std::int64_t>(high.size()));
    for (std::size_t i = 0; i < high.size(); ++i)
      ASSERT_EQ(rounded[i].bits, to_fp16(high[i]).bits) << high[i];
  }
}

TEST(RowKernels, rounding_to_bf16_keeps_denormals_and_nan_and_rounds_to_even) {
  const std::vector<float> values{0.0f,           -0.0f,
                                  1e-40f,         -1e-39f,
                                  1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f,
                                  3.3895e38f,     std::numeric_limits<float>::infinity(),
                                  std::nanf(""),  0x1p-126f};
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512}) {
    if (!supported(isa)) continue;
    std::vector<float> many;
    for (int i = 0; i < 4; ++i) many.insert(many.end(), values.begin(), values.end());
    std::vector<bf16> low(many.size());
    row_kernels(DType::bf16, isa).round(many.data(), low.data(), static_cast<std::int64_t>(many.size()));
    for (std::size_t i = 0; i < many.size(); ++i) EXPECT_EQ(low[i].bits, to_bf16(many[i]).bits) << many[i];
  }
}

}  // namespace
}  // namespace headrace::testing
