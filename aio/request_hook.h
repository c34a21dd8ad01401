// The tests' way into an engine: called before each request goes to the kernel, it answers how many of its
// bytes to ask for, so that the kernel really makes a short transfer; 0 stands for the end of the file, a
// negated errno value for a failure, both without a system call. Called on the engine's threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "headrace/io_engine.h"

namespace headrace::aio {

using RequestHook = std::function<std::int64_t(IoDirection direction, std::uint64_t offset, Bytes bytes)>;

std::unique_ptr<IoEngine> make_uring_engine(const IoEngineOptions& options, RequestHook hook);
std::unique_ptr<IoEngine> make_thread_engine(const IoEngineOptions& options, RequestHook hook);

}  // namespace headrace::aio
