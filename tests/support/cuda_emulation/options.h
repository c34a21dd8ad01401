// What an emulated machine is like, and which of its faults a test wants. Set from the environment, so that
// it also works for the whole program, or by a test before the first CUDA call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace cuda_emulation {

struct Options {
  int devices = 8;                                         // HEADRACE_EMULATED_DEVICES
  std::size_t device_memory_bytes = std::size_t{1} << 30;  // HEADRACE_EMULATED_MEMORY
  bool poison_device_memory = true;
  // Holds each piece of stream work back by a random time up to `largest_delay_seconds`; 0: not at all.
  // Blocks, warps and lanes run in orders that it gives, too.
  std::uint64_t delay_seed = 0;  // HEADRACE_EMULATED_DELAYS
  double largest_delay_seconds = 0.0005;
  // HEADRACE_EMULATED_FAULTS="cudaMalloc:1,launch:7": the n-th call (from 1) fails, and those after it do
  // not. Calls: cudaMalloc, cudaHostAlloc, cudaHostRegister, launch and cublasLtMatmul (refused at once),
  // kernel and copy (fail as they run).
  std::map<std::string, std::uint64_t> faults;
  // HEADRACE_EMULATED_WAITS=FILE: the places in the program that waited for events are written there at exit.
  std::string waits_file;
  // HEADRACE_EMULATED_DROPPED_WAIT=PLACE: waits there (as the file names it) do nothing.
  std::string dropped_wait;
};

// Of this process. Not to be changed while streams have work.
Options& options();

// Whether this call of `name` is the one that is to fail.
bool fails_now(const std::string& name);

}  // namespace cuda_emulation
