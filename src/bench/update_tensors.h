// The tensors of one case of `bench adam`, laid out in a piece of memory as the engine lays out its blocks.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "headrace/adam_bench.h"
#include "headrace/cpu_placement.h"
#include "headrace/optimizer_update.h"

namespace headrace {

struct UpdateFormat {
  std::string_view name;
  MasterDType master = MasterDType::f32;
  MomentDType moments = MomentDType::f32;
  DType gradient = DType::f32;
  DType parameters = DType::f32;       // the master itself where there is none beside them
  std::optional<DType> low_precision;  // written beside the master
};
const UpdateFormat& update_format(std::string_view name);         // throws UsageError
OptimizerArguments update_arguments(std::string_view optimizer);  // the same

// One case: how its tensors are kept and updated.
struct UpdateCase {
  UpdateFormat format;
  OptimizerArguments arguments;
  TensorShape shape;
  StateFormat states() const { return format_of(arguments, format.master, format.moments); }
};

// Memory of all tensors, and what an update of them moves at least.
Bytes tensor_bytes(const UpdateCase& one);
double ideal_bytes_per_element(const UpdateCase& one);

// A tensor is kept in blocks, as the engine keeps what one rank owns, of so many elements but for its last.
// Whole arrays of 2^26 fp32 elements would lie 256 MiB apart, where machines were seen that reach half their
// memory's speed, whoever updates them: a property of a power of two, not of an update.
inline constexpr std::uint64_t largest_block_numel = std::uint64_t{1} << 20;
// A block's arrays one behind the other: states, gradient, 16-bit parameters; the next block follows, the
// next tensor behind the last. `memory` holds tensor_bytes.
std::vector<GroupSpan> lay_out(const UpdateCase& one, std::span<std::byte> memory);
// The arrays of one block, or of a part of it, that an update reads or writes.
std::vector<std::span<std::byte>> arrays_of(const UpdateSpan& span);
// Which of it belongs on which node: whole blocks where there are many, a part of each array where there are
// few.
std::vector<NodeRun> node_runs(const UpdateCase& one, std::span<std::byte> memory,
                               const std::vector<NodeThreads>& placement);
// Ordinary values, none of which becomes denormal on the way: the same again every pattern_numel elements.
inline constexpr std::uint64_t pattern_numel = 4096;
void fill(const UpdateCase& one, std::span<const GroupSpan> blocks);

}  // namespace headrace
