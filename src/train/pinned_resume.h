// A run that goes on from a checkpoint which is pinned in its own swap stores: they are not replaced, they go
// back to it.
#pragma once

#include <string>

#include "headrace/config.h"

namespace headrace {

// The options of such a run say so: resume_swap, and what is to be gone back to. Others stay as they are.
// UsageError where the run would replace the stores that hold the checkpoint it begins with.
ResolvedOptions with_pinned_resume(const ResolvedOptions& options);

}  // namespace headrace
