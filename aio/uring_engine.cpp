// io_uring: a path is a ring.
#include "aio/queued_engine.h"
#include "aio/uring_path.h"

namespace headrace {
namespace aio {
namespace {

class UringEngine final : public QueuedEngine {
 public:
  // A refusal is found here, not at a submit.
  UringEngine(const IoEngineOptions& options, RequestHook hook) : QueuedEngine(options, std::move(hook)) {
    Uring({.entries = choose_shape(options, std::nullopt).queue_depth}).try_out();
  }

  std::string_view name() const override { return "io_uring"; }

 private:
  std::shared_ptr<IoPath> make_path(const IoShape& shape, bool polled) override {
    return std::make_shared<UringPath>(Uring::Options{.entries = shape.queue_depth,
                                                      .poll_completions = polled,
                                                      .poll_submissions = options().poll_submissions},
                                       shape.in_flight_bytes, hook());
  }

  bool can_poll(const IoFile& file) const override {
    return Uring::can_poll(file.fd(), file.offset_alignment());
  }
};

}  // namespace

std::unique_ptr<IoEngine> make_uring_engine(const IoEngineOptions& options, RequestHook hook) {
  return std::make_unique<UringEngine>(options, std::move(hook));
}

}  // namespace aio

std::unique_ptr<IoEngine> make_uring_engine(const IoEngineOptions& options) {
  return aio::make_uring_engine(options, {});
}

}  // namespace headrace
