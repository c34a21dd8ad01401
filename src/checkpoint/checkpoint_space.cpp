#include "headrace/checkpoint_space.h"

#include <algorithm>
#include <vector>

#include "headrace/checkpoint.h"
#include "headrace/engine_states.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/machine_files.h"
#include "headrace/state_hash.h"
#include "src/checkpoint/agreement.h"
#include "src/checkpoint/stored_arrays.h"

namespace headrace {
namespace {

constexpr Bytes file_system_block = 4096;

// Ranks with the same `host` and `disk` share what is free. Numbers of disks mean something on one host only.
struct RankNeed {
  std::uint64_t host = 0, disk = 0;
  Bytes bytes = 0, available = 0;
};

RankNeed look_at(const CheckpointSpaceNeed& need) {
  const files::FileSystem system = files::file_system_of(need.directory);
  const std::string boot = MachineFiles().line("/proc/sys/kernel/random/boot_id").value_or("");
  return {.host = hash_bytes(boot),
          .disk = system.device,
          .bytes = round_up(need.bytes, file_system_block),
          .available = system.free_bytes};
}

std::string refusal(const CheckpointSpaceNeed& need, const RankNeed& disk, int ranks) {
  const std::size_t kept = find_checkpoints(need.directory).size();
  std::string text = fmt::format(
      "a checkpoint takes {}{} in {}, whose file system has {} free: {} are missing. Nothing was written.",
      format_bytes(disk.bytes), ranks == 1 ? "" : fmt::format(" for {} ranks", ranks), need.directory,
      format_bytes(disk.available), format_bytes(disk.bytes - disk.available));
  if (kept > 0 && need.keep_last == 0)
    text += fmt::format(" It holds {} checkpoint{}: --keep-last N removes older ones after each save.", kept,
                        kept == 1 ? "" : "s");
  if (kept > 1 && need.keep_last > 1)
    text += fmt::format(" It holds {} checkpoints: a smaller number than --keep-last {} keeps fewer.", kept,
                        need.keep_last);
  return text + " Free space there, or give a --checkpoint-dir on a larger disk.";
}

}  // namespace

Bytes checkpoint_bytes(std::span<const UnitSpec> units, const StateFormat& states, int world_size,
                       std::uint32_t parity) {
  const std::vector<StoredArray> arrays = stored_arrays(states);
  Bytes bytes = static_cast<Bytes>(world_size) * 2 * file_system_block;
  for (const UnitSpec& unit : units)
    for (const ParameterSpec& parameter : unit.parameters) {
      const std::uint64_t numel = parameter.numel();
      for (const StoredArray& array : arrays) bytes += array.bytes_of(numel);
      const std::uint64_t pieces = divide_up(numel, most_piece_numel) + 1;
      bytes += pieces * arrays.size() * (2 * slice_description_bytes + parameter.name.size());
    }
  // A row is as long as the largest file, which is hardly more than its share.
  return bytes + parity * (divide_up(bytes, static_cast<Bytes>(world_size)) + file_system_block);
}

void require_checkpoint_space(const CheckpointSpaceNeed& need, Communicator& communicator, Device& device) {
  RankNeed own;
  together(communicator, device, "disk of a checkpoint", [&] { own = look_at(need); });
  const std::vector<RankNeed> all = gather_from_ranks(own, communicator, device, "space for a checkpoint");
  for (const RankNeed& one : all) {
    RankNeed disk{.host = one.host, .disk = one.disk, .available = one.available};
    int ranks = 0;
    for (const RankNeed& other : all)
      if (other.host == one.host && other.disk == one.disk) {
        disk.bytes += other.bytes;
        disk.available = std::min(disk.available, other.available);
        ++ranks;
      }
    if (disk.bytes > disk.available) throw DoesNotFit(refusal(need, disk, ranks));
  }
}

}  // namespace headrace
