// The real engines with a hook before each request to the kernel: what tests of faults run over.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>

#include "aio/request_hook.h"

namespace headrace::testing {

struct HookedEngine {
  const char* name;
  std::unique_ptr<IoEngine> (*make)(const IoEngineOptions&, aio::RequestHook);
};

inline void PrintTo(const HookedEngine& engine, std::ostream* out) {
  *out << engine.name;
}

inline auto hooked_engines() {
  return ::testing::Values(HookedEngine{"uring", aio::make_uring_engine},
                           HookedEngine{"threads", aio::make_thread_engine});
}

}  // namespace headrace::testing
