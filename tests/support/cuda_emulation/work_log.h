// Names of actors and of their work, for violations; the host's place in the vector clocks.
#pragma once

#include <string>

#include "support/cuda_emulation/clocks.h"

namespace cuda_emulation {

std::string actor_name(Actor actor);    // "the host", "stream 3"
std::string last_work_of(Actor actor);  // "copy" of stream 3
void note_work(Actor actor, const char* name);

// The piece of work that this thread runs; "host code" on host threads.
const char* running_work();
void set_running_work(const char* name);

const Moment& host_moment();

}  // namespace cuda_emulation
