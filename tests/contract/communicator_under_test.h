// Each program of the communicator contract says which communicator it is about.
#pragma once

#include <memory>

#include "headrace/communicator.h"

namespace headrace {

std::unique_ptr<Communicator> communicator_under_test(Device& device);

}  // namespace headrace
