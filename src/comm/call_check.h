// HEADRACE_COMM_CHECK=1: before every operation the ranks tell each other which one they are in.
#pragma once

#include <array>
#include <cstdint>

#include "headrace/exchange_communicator.h"

namespace headrace {

bool call_check_asked_for();

// An operation as it is told to other ranks.
struct AnnouncedCall {
  AnnouncedCall() = default;
  explicit AnnouncedCall(const Operation& operation);
  // Throws Error naming both calls where the other rank is in another operation, sequence number or label.
  void require_same(int rank, const AnnouncedCall& other, int other_rank) const;
  bool operator==(const AnnouncedCall&) const = default;

  std::array<char, 24> name{};
  std::array<char, 64> label{};
  std::uint64_t sequence = 0;
};

}  // namespace headrace
