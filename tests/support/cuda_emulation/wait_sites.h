// The places in the program that wait for events or streams: counted, listed, and one of them made to do
// nothing, so that a test can show that each wait is needed.
#pragma once

namespace cuda_emulation {

// Called by the emulated waits: whether this one is to do nothing. The place is `device_frames` callers above
// the emulated function: that many of them are the device's own. `kind` is listed with the place.
bool wait_is_dropped(const char* kind, int device_frames);

}  // namespace cuda_emulation
