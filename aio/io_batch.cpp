#include "headrace/io_batch.h"

#include <utility>

namespace headrace {
namespace {

thread_local const IoBatch* innermost = nullptr;

}  // namespace

IoBatch::IoBatch(IoEngine& engine) : engine_(engine), outer_(std::exchange(innermost, this)) {}

IoBatch::~IoBatch() {
  innermost = outer_;
  if (!is_open(engine_)) engine_.issue_kept_back();
}

bool IoBatch::is_open(const IoEngine& engine) {
  for (const IoBatch* batch = innermost; batch != nullptr; batch = batch->outer_)
    if (&batch->engine_ == &engine) return true;
  return false;
}

}  // namespace headrace
