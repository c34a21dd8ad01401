// Blocks at the places that a table of extents gives, for a thread beside the owner's.
#pragma once

#include <memory>

#include "headrace/swap_store.h"
#include "swap/stripes.h"

namespace headrace::swap {

std::unique_ptr<SwapReader> make_table_reader(std::shared_ptr<Stripes> stripes, ExtentTable table);

}  // namespace headrace::swap
