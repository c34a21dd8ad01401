#include "headrace/errors.h"
#include "headrace/optimizer_update.h"

namespace headrace {
namespace {

template <class Pointer>
Pointer advanced(Pointer start, Bytes bytes) {
  using Byte =
      std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const std::byte, std::byte>;
  return start == nullptr ? nullptr : static_cast<Pointer>(static_cast<Byte*>(start) + bytes);
}

Bytes master_element_bytes(const UpdateSpan& span) {
  if (span.format.master == MasterDType::none) return size_of(span.parameter_dtype);
  return span.format.master == MasterDType::f32 ? sizeof(float) : sizeof(bf16);
}

Bytes moment_element_bytes(MomentDType dtype) {
  return dtype == MomentDType::f32 ? sizeof(float) : dtype == MomentDType::bf16 ? sizeof(bf16) : 1;
}

}  // namespace

UpdateSpan part_of(const UpdateSpan& span, std::uint64_t begin, std::uint64_t numel) {
  const bool quantised = span.format.moments == MomentDType::int8;
  HEADRACE_CHECK(begin <= span.numel && numel <= span.numel - begin, "part [{}, +{}) of {} elements", begin,
                 numel, span.numel);
  HEADRACE_CHECK(!quantised || begin % quantised_block_numel == 0 || begin == span.numel,
                 "a span of int8 moments is cut at element {}, within a quantisation block", begin);
  UpdateSpan part = span;
  part.state.master = advanced(span.state.master, begin * master_element_bytes(span));
  for (MomentArray& moment : part.state.moments) {
    moment.values = advanced(moment.values, begin * moment_element_bytes(span.format.moments));
    if (quantised && moment.scales != nullptr) moment.scales += begin / quantised_block_numel;
  }
  part.gradient = advanced(span.gradient, begin * size_of(span.gradient_dtype));
  part.low_precision = advanced(span.low_precision, begin * size_of(span.low_precision_dtype));
  part.numel = numel;
  part.first_element = span.first_element + begin;
  return part;
}

}  // namespace headrace
