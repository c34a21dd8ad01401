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

}  // namespace

UpdateSpan part_of(const UpdateSpan& span, std::uint64_t begin, std::uint64_t numel) {
  const bool quantised = span.format.moments == MomentDType::int8;
  HEADRACE_CHECK(begin <= span.numel && numel <= span.numel - begin, "part [{}, +{}) of {} elements", begin,
                 numel, span.numel);
  HEADRACE_CHECK(!quantised || numel == 0 || begin % quantised_block_numel == 0,
                 "a span of int8 moments is cut at element {}, within a quantisation block", begin);
  UpdateSpan part = span;
  part.state.master = advanced(span.state.master, begin * size_of(master_dtype(span)));
  for (MomentArray& moment : part.state.moments) {
    moment.values = advanced(moment.values, begin * size_of(span.format.moments));
    if (quantised && moment.scales != nullptr) moment.scales += begin / quantised_block_numel;
  }
  part.gradient = advanced(span.gradient, begin * size_of(span.gradient_dtype));
  part.low_precision = advanced(span.low_precision, begin * size_of(span.low_precision_dtype));
  part.numel = numel;
  part.first_element = span.first_element + begin;
  return part;
}

}  // namespace headrace
