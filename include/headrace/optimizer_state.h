// Which arrays an optimizer keeps for its parameters, of what types, and how they lie in one piece of memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/bytes.h"
#include "headrace/optimizer.h"
#include "headrace/state_codes.h"

namespace headrace {

// bf16 and int8, which has a scale for each block, are rounded stochastically (state_codes.h).
enum class MomentDType : std::uint8_t { f32, bf16, int8 };
// none: the parameters themselves are the master, fp32 or stochastically rounded bf16, and the state holds
// moments alone.
enum class MasterDType : std::uint8_t { f32, bf16, none };
std::string_view name_of(MomentDType dtype);  // "fp32", "bf16", "int8"
std::string_view name_of(MasterDType dtype);  // "fp32", "bf16", "none"
// Of one value; int8's scales are beside them.
constexpr Bytes size_of(MomentDType dtype) {
  return dtype == MomentDType::f32 ? sizeof(float) : dtype == MomentDType::bf16 ? sizeof(bf16) : 1;
}

inline constexpr int most_moments = 3;

struct StateFormat {
  OptimizerKind kind = OptimizerKind::adam;
  bool amsgrad = false;   // adam: a third moment, the largest second one
  bool momentum = false;  // sgd: keeps a buffer
  MasterDType master = MasterDType::f32;
  MomentDType moments = MomentDType::f32;
  bool operator==(const StateFormat&) const = default;
};
StateFormat format_of(const OptimizerArguments& arguments, MasterDType master, MomentDType moments);
// "adamw or adam with amsgrad": their states are alike.
std::string optimizer_text(const StateFormat& format);
std::string text_of(const StateFormat& format);  // "adamw or adam, fp32 master, int8 moments"

// One of the arrays behind the master. Squared ones are never negative, and int8 keeps their roots.
struct Moment {
  std::string_view name;  // as PyTorch calls it
  bool squared = false;
};
constexpr int moment_count(const StateFormat& format) {
  switch (format.kind) {
    case OptimizerKind::adam:
      return format.amsgrad ? 3 : 2;
    case OptimizerKind::sgd:
      return format.momentum ? 1 : 0;
    case OptimizerKind::adagrad:
    case OptimizerKind::lion:
      break;
  }
  return 1;
}
// index < moment_count: adam exp_avg, exp_avg_sq, max_exp_avg_sq; lion exp_avg; adagrad sum; sgd
// momentum_buffer.
Moment moment_of(const StateFormat& format, int index);

// numel values of one moment. int8: a code byte each in `values`, and a scale for every quantised_block_numel
// of them.
struct MomentArray {
  std::byte* values = nullptr;
  float* scales = nullptr;
};

// The arrays of numel elements end to end: master, then the moments, each with its scales behind it; int8
// codes padded to whole quantisation blocks, an odd number of bf16 values by one more. Every array, and the
// end, is aligned to 4 bytes when the memory is.
struct StateArrays {
  std::byte* master = nullptr;  // null where the format has none
  std::array<MomentArray, most_moments> moments;
};
Bytes state_bytes(const StateFormat& format, std::uint64_t numel);
StateArrays state_arrays(const StateFormat& format, std::byte* memory, std::uint64_t numel);

// Elements [first, first + numel) of an array as fp32. int8: `first` lies on a quantisation block.
void read_master(MasterDType dtype, const std::byte* master, std::uint64_t first, std::uint64_t numel,
                 float* out);
void read_moment(const StateFormat& format, int index, const MomentArray& array, std::uint64_t first,
                 std::uint64_t numel, float* out);

// The reverse, rounded to nearest: for values that come from elsewhere, not from an update. int8: `numel`
// ends with the array or on a quantisation block.
void write_master(MasterDType dtype, std::byte* master, std::uint64_t first, std::uint64_t numel,
                  const float* values);
void write_moment(const StateFormat& format, int index, const MomentArray& array, std::uint64_t first,
                  std::uint64_t numel, const float* values);

}  // namespace headrace
