// What keeps ranks together while each does its own part of a checkpoint: a failure of one is thrown by all.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/communicator.h"

namespace headrace {

// Runs the action here, then learns from all ranks whether theirs succeeded. A collective. Throws this rank's
// own error, or an Error with the text of the first rank that failed.
void together(Communicator& communicator, Device& device, std::string_view label,
              const std::function<void()>& action);

// The bytes of every rank, end to end. A collective.
std::vector<std::byte> gather_bytes(std::span<const std::byte> own, Communicator& communicator,
                                    Device& device, std::string_view label);

// The lines of every rank, in rank order; none has a line break in it. A collective.
std::vector<std::string> gather_lines(const std::vector<std::string>& own, Communicator& communicator,
                                      Device& device, std::string_view label);

}  // namespace headrace
