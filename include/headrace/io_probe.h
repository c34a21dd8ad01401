// What io_uring and direct I/O can do here, found by trying: for `headrace doctor` and for whoever wants to
// say why a transfer is slower than it could be. Takes milliseconds (a second where the kernel starts no
// thread), changes nothing that stays. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/bytes.h"

namespace headrace {

// One thing that was tried: `code` is the errno value that refused it, or 0.
struct IoTrial {
  std::string name;
  int code = 0;
};

struct UringProbe {
  int code = 0;                     // errno value that refused a ring, or a request through it
  std::string refusal;              // the cause and the remedy in words
  std::vector<IoTrial> flags;       // of set-up, that the engine's options ask for: "IOPOLL", "SQPOLL"
  std::vector<IoTrial> operations;  // that the engine uses: "READ", ... (ENOSYS: not known to the kernel)
  int known_operations = 0;         // of the kernel
  IoTrial files, buffers;           // registering a file, and `buffer_bytes` of memory
  Bytes buffer_bytes = 0;
  IoTrial workers;  // a thread of the kernel, for a request that blocks (ECANCELED: it could not start one)
};
UringProbe probe_uring();

// What a file in a folder takes. Tried with a file of a few pages that never has a name, or loses it at once.
struct DirectIoProbe {
  int create_code = 0;  // errno value of making the file; the rest is then empty
  int write_code = 0;   // of writing to it
  bool direct = false;  // O_DIRECT is taken, and what was read is what was written
  bool stated = false;  // the file itself states its alignments (STATX_DIOALIGN)
  std::uint32_t memory_alignment = 0, offset_alignment = 0;  // 0: unknown
};
DirectIoProbe probe_direct_io(const std::string& folder);

}  // namespace headrace
