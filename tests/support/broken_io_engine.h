// Engines that break one promise of io_engine.h each, over the thread engine: what the contract suite has to
// notice.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "headrace/io_engine.h"

namespace headrace::testing {

enum class Defect : std::uint8_t {
  none,
  flips_a_bit,              // of the last byte that was read
  writes_behind_its_bytes,  // reads, and changes the byte after what was asked for
  writes_a_block_more,      // zeros behind what is written
  cuts_offsets_at_4_gib,
  cuts_transfers_at_2_gib,
  hides_errors,
  counts_a_byte_too_many,
  counts_nothing,
  counts_waiting_twice,
  keeps_buffers,
  checks_no_arguments,
  takes_any_option,
};
std::string_view name_of(Defect defect);
std::optional<Defect> defect_named(std::string_view name);

std::unique_ptr<IoEngine> make_broken_engine(Defect defect, const IoEngineOptions& options);

}  // namespace headrace::testing
