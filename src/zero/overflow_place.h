// Where a gradient stops being finite, in words, for the error that ends a run.
#pragma once

#include <string>

#include "src/zero/gradient_store.h"

namespace headrace {

// "element 5 of h.0.ln_1.weight, in the gradient of rank 2": the first element in the order of the model, and
// the ranks whose own gradient had it where that was looked for (GradientStore::trace_overflow). After
// GradientStore::finish, where its sum is not finite. A collective: every rank gets the same text. Blocks.
std::string overflow_place(EngineContext& context, GradientStore& gradients);

}  // namespace headrace
