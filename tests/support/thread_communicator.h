// Ranks as threads of one test process: a Communicator over shared memory, so that every stage and tier can
// be run at any world size without a launcher. Each rank has its own Device and calls from its own thread.
#pragma once

#include <functional>
#include <memory>

#include "headrace/communicator.h"

namespace headrace::testing {

class ThreadHub;  // what the ranks share

std::shared_ptr<ThreadHub> make_thread_hub(int size);
std::unique_ptr<Communicator> make_thread_communicator(std::shared_ptr<ThreadHub> hub, Device& device,
                                                       int rank);

// Runs body(rank) on `size` threads and rethrows the first exception. A rank that throws releases the others
// with an error.
void run_ranks(int size, const std::function<void(int rank, const std::shared_ptr<ThreadHub>& hub)>& body);

}  // namespace headrace::testing
