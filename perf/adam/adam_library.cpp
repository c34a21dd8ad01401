// Headrace's AdamW as a C library over somebody else's buffers, for compare.py.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "headrace/cpu_pool.h"
#include "headrace/optimizer_update.h"

namespace {

struct Tensors {
  std::vector<headrace::GroupSpan> spans;
};

headrace::UpdateSpan span_of(std::uint64_t numel, float* master, float* exp_avg, float* exp_avg_sq,
                             const void* gradient, void* bf16_parameters) {
  const auto bytes = [](float* values) { return reinterpret_cast<std::byte*>(values); };
  headrace::UpdateSpan span;
  span.state.master = bytes(master);
  span.state.moments[0].values = bytes(exp_avg);
  span.state.moments[1].values = bytes(exp_avg_sq);
  span.gradient = gradient;
  span.gradient_dtype = bf16_parameters != nullptr ? headrace::DType::bf16 : headrace::DType::f32;
  span.low_precision = bf16_parameters;
  span.numel = numel;
  return span;
}

}  // namespace

extern "C" {

void adam_threads(int threads) {
  headrace::set_cpu_threads(threads);
}

Tensors* adam_tensors() {
  return new Tensors;
}

void adam_free(Tensors* tensors) {
  delete tensors;
}

// With bf16_parameters the gradient is bf16, else both are fp32.
void adam_add(Tensors* tensors, std::uint64_t numel, float* master, float* exp_avg, float* exp_avg_sq,
              const void* gradient, void* bf16_parameters) {
  tensors->spans.push_back({span_of(numel, master, exp_avg, exp_avg_sq, gradient, bf16_parameters), 0});
}

// 0, or 1 after saying on stderr what is wrong.
int adam_step(Tensors* tensors, std::uint64_t step, double learning_rate, double weight_decay) {
  try {
    const headrace::OptimizerArguments group{
        .learning_rate = learning_rate, .weight_decay = weight_decay, .step = step};
    headrace::optimizer_update_parallel(tensors->spans, {&group, 1});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headrace: %s\n", error.what());
    return 1;
  }
}
}
