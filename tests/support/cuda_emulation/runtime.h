// What the emulated libraries (cuBLASLt, NCCL) share with the emulated runtime: work on streams, and the
// memory it may touch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <string>

namespace cuda_emulation {

// Runs `work` on the stream's thread, in order with the stream's other work. `name` is of static storage.
void enqueue(cudaStream_t stream, const char* name, std::function<void()> work);

// Within stream work: declares that it reads or writes [address, address + bytes) and gives the address at
// which it may do so. A violation when that is not inside one device allocation or registered host range, or
// when another stream's or the host's access conflicts and no event orders the two.
const void* readable(const void* address, std::size_t bytes);
void* writable(void* address, std::size_t bytes);

// What a refused launch leaves for cudaGetLastError.
void fail_launch(cudaError_t status);

// A program under test did what a real device would not forgive: prints it and ends the process with
// status 86.
[[noreturn]] void violation(const std::string& what);

}  // namespace cuda_emulation
