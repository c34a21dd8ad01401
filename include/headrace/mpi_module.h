// The module with everything of MPI in it, without starting MPI: for who wants to know whether several ranks
// could run.
#pragma once

#include <string>

namespace headrace {

struct MpiModule {
  std::string path;     // of libheadrace_mpi.so
  std::string library;  // "Open MPI v4.1.4"; empty where it does not say
};
// Loads it, for good. Throws UsageError saying what is missing.
MpiModule load_mpi_module();

}  // namespace headrace
