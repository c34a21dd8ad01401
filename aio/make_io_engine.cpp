#include "aio/uring_refusal.h"
#include "headrace/io_engine.h"
#include "headrace/log.h"

namespace headrace {

std::unique_ptr<IoEngine> make_io_engine(const IoEngineOptions& options) {
  if (options.require_io_uring) return make_uring_engine(options);
  try {
    return make_uring_engine(options);
  } catch (const aio::UringRefused& refusal) {
    warn_once(
        "io_uring refused",
        fmt::format("{} Until then pread and pwrite on threads do its work, more slowly.", refusal.what()));
  }
  return make_thread_engine(options);
}

}  // namespace headrace
