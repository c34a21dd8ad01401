// The update and the ceiling of a span by its format.
#pragma once

#include "cpu_adam/ceiling_body.h"
#include "cpu_adam/quantised_body.h"
#include "cpu_adam/update_body.h"

namespace headrace {
namespace {

// Calls body<Rule>() with the rule of a format.
template <class Body>
[[gnu::always_inline]] inline void with_rule(const StateFormat& format, const Body& body) {
  switch (format.kind) {
    case OptimizerKind::adam:
      return format.amsgrad ? body.template operator()<AdamRule<true>>()
                            : body.template operator()<AdamRule<false>>();
    case OptimizerKind::adagrad:
      return body.template operator()<AdagradRule>();
    case OptimizerKind::lion:
      return body.template operator()<LionRule>();
    case OptimizerKind::sgd:
      return format.momentum ? body.template operator()<SgdRule<true>>()
                             : body.template operator()<SgdRule<false>>();
  }
}

template <class V, class Rule, class Master>
[[gnu::always_inline]] inline void update_with(const UpdateSpan& span, const UpdateConstants& constants,
                                               Stores stores) {
  if (Rule::moments == 0 || span.format.moments == MomentDType::f32)
    return update_vectors<V, Rule, Master, float>(span, constants, stores);
  if constexpr (Rule::moments > 0) {
    if (span.format.moments == MomentDType::bf16)
      return update_vectors<V, Rule, Master, bf16>(span, constants, stores);
    update_blocks<V, Rule, Master>(span, constants, stores);
  }
}

template <class V>
void update(const UpdateSpan& span, const UpdateConstants& constants, Stores stores) {
  with_rule(
      span.format, [&]<class Rule>() __attribute__((always_inline)) {
        if (master_dtype(span) == DType::bf16) {
          update_with<V, Rule, bf16>(span, constants, stores);
        } else {
          update_with<V, Rule, float>(span, constants, stores);
        }
      });
}

template <class V>
void ceiling(const UpdateSpan& span, Stores stores) {
  if (master_dtype(span) == DType::bf16) {
    ceiling_with<V, bf16>(span, stores);
  } else {
    ceiling_with<V, float>(span, stores);
  }
}

}  // namespace
}  // namespace headrace
