// The optimizers: their hyper-parameters and the fp32 factors that every implementation computes with.
// Semantics are PyTorch's (Lion's: Chen et al. 2023), and the defaults of the struct those of
// torch.optim.Adam. Pure data; the step number is an argument, never hidden state.
//
// Each line one correctly rounded fp32 operation or fma, on every instruction set and device, with p the
// master parameter:
//   g = gradient * gradient_scale                 g = fma(coupled_decay, p, g) when coupled_decay is not 0
//   adam     m = fma(beta1, m, one_minus_beta1 * g)   v = fma(beta2, v, (one_minus_beta2 * g) * g)
//            amsgrad: x = v > x or v is NaN ? v : x   (without it x is v)
//            d = sqrt(x) / sqrt_bias2 + epsilon   p = p * decay - step_size * (m / d)
//   adagrad  s = fma(g, g, s)   d = sqrt(s) + epsilon   p = p - step_size * (g / d)
//   lion     u = sign(fma(beta1, m, one_minus_beta1 * g))   p = p * decay - step_size * u   (sign of 0 is 0,
//   of NaN is NaN)
//            m = fma(beta2, m, one_minus_beta2 * g)
//   sgd      momentum: m = fma(beta1, m, one_minus_beta1 * g)   u = nesterov ? fma(beta1, m, g) : m   (else u
//   is g)
//            p = p - step_size * u
// The step counts updates of the whole model, torch's those of one parameter. It shows where a parameter's
// first gradient comes later than others': its bias corrections (adam) and rate decay (adagrad) are those of
// the model's step here, and its first gradient is dampened (sgd), whose buffer starts as the gradient of
// step 1.
#pragma once

#include <cstdint>
#include <string_view>

namespace headrace {

enum class OptimizerKind : std::uint8_t { adam, adagrad, lion, sgd };
std::string_view name_of(OptimizerKind kind);

// Hyper-parameters of one update of one parameter group.
struct OptimizerArguments {
  OptimizerKind kind = OptimizerKind::adam;
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;       // adam, lion
  double epsilon = 1e-8;                   // adam, adagrad
  double weight_decay = 0.0;               // coupled in adagrad and sgd, decoupled in lion
  bool decoupled = true;                   // adam: AdamW
  bool amsgrad = false;                    // adam
  double rate_decay = 0.0;                 // adagrad: lr_decay
  double momentum = 0.0, dampening = 0.0;  // sgd; momentum 0 keeps no buffer
  bool nesterov = false;                   // sgd
  bool maximize = false;
  std::uint64_t step = 1;       // from 1
  float gradient_scale = 1.0f;  // folds clipping, loss scale and averaging
  std::uint64_t seed = 0;       // of stochastic rounding
};

// Computed in double from the arguments and rounded once, so that every implementation starts from the same
// bits.
struct UpdateConstants {
  OptimizerKind kind;
  bool amsgrad, momentum, nesterov;
  float gradient_scale;          // negative to maximise
  float beta1, one_minus_beta1;  // sgd: momentum, and 1 - dampening (1 in step 1, as torch starts its buffer)
  float beta2, one_minus_beta2;
  float sqrt_bias2;  // adam: sqrt(1 - beta2^step)
  float epsilon;
  float coupled_decay;  // weight_decay where it is added to the gradient, else 0
  float decay;          // 1 - learning_rate * weight_decay where it is decoupled, else 1
  float step_size;      // adam: learning_rate / (1 - beta1^step); adagrad: / (1 + (step - 1) * rate_decay)
  std::uint64_t rounding_key;  // of stochastic rounding: seed and step (state_codes.h)
};
// Throws UsageError on a negative or NaN rate, decay, epsilon, momentum or dampening, a beta outside [0, 1),
// Nesterov without momentum or with dampening, step 0, and factors or an epsilon that fp32 cannot hold.
UpdateConstants constants_of(const OptimizerArguments& arguments);

}  // namespace headrace
