#include "tests/support/fault_io_engine.h"

#include <algorithm>

namespace headrace::testing {
namespace {

// A transfer that fails on plan, after `inner` has moved its first bytes.
class FailedTicket final : public IoTicket::State {
 public:
  FailedTicket(IoTicket inner, HostLease buffer, int code)
      : inner_(std::move(inner)), buffer_(std::move(buffer)), code_(code) {}

  IoResult wait() override {
    if (!inner_) return {.code = code_};
    const IoResult moved = inner_.wait();
    return moved.ok() ? IoResult{.bytes = moved.bytes, .code = code_} : moved;
  }
  bool done() override { return !inner_ || inner_.done(); }
  HostLease take() override { return inner_ ? inner_.take() : std::move(buffer_); }

 private:
  IoTicket inner_;
  HostLease buffer_;
  int code_;
};

class FaultEngine final : public IoEngine {
 public:
  FaultEngine(std::unique_ptr<IoEngine> inner, std::shared_ptr<FaultPlan> plan)
      : inner_(std::move(inner)), plan_(std::move(plan)) {}

  std::string_view name() const override { return "fault"; }
  IoCounters counters() const override { return inner_->counters(); }
  IoRegistration register_memory(std::span<std::byte> memory) override {
    return inner_->register_memory(memory);
  }

  IoTicket submit(IoDirection direction, const IoFile& file, std::uint64_t offset, HostLease buffer,
                  Bytes bytes) override {
    const auto rule = plan_->match(direction, file.path(), offset, bytes);
    if (!rule || rule->code == 0) return inner_->submit(direction, file, offset, std::move(buffer), bytes);
    const Bytes moved =
        std::min(rule->moved_bytes, bytes) / file.offset_alignment() * file.offset_alignment();
    IoTicket inner;
    if (moved > 0) inner = inner_->submit(direction, file, offset, std::move(buffer), moved);
    return IoTicket(std::make_unique<FailedTicket>(std::move(inner), std::move(buffer), rule->code));
  }

 private:
  std::unique_ptr<IoEngine> inner_;
  std::shared_ptr<FaultPlan> plan_;
};

bool matches(const FaultRule& rule, IoDirection direction, const std::string& path, std::uint64_t offset,
             Bytes bytes) {
  return (!rule.direction || *rule.direction == direction) && path.ends_with(rule.path_suffix) &&
         offset < rule.end && offset + bytes > rule.begin;
}

}  // namespace

void FaultPlan::add(FaultRule rule) {
  const std::lock_guard lock(mutex_);
  rules_.push_back({.rule = std::move(rule)});
}

void FaultPlan::clear() {
  const std::lock_guard lock(mutex_);
  rules_.clear();
}

std::uint64_t FaultPlan::hits() const {
  const std::lock_guard lock(mutex_);
  return hits_;
}

std::optional<FaultRule> FaultPlan::match(IoDirection direction, const std::string& path,
                                          std::uint64_t offset, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  std::optional<FaultRule> chosen;
  for (Counted& counted : rules_) {
    const FaultRule& rule = counted.rule;
    if (!matches(rule, direction, path, offset, bytes)) continue;
    const std::uint64_t number = counted.matched++;
    const bool due =
        number >= rule.first && (number - rule.first) % rule.every == 0 && counted.hit < rule.count;
    if (!due || chosen) continue;
    ++counted.hit;
    ++hits_;
    chosen = rule;
  }
  return chosen;
}

aio::RequestHook FaultPlan::request_hook() {
  return
      [plan = shared_from_this()](IoDirection direction, std::uint64_t offset, Bytes bytes) -> std::int64_t {
        const auto rule = plan->match(direction, "", offset, bytes);
        if (!rule) return static_cast<std::int64_t>(bytes);
        if (rule->code != 0) return -rule->code;
        return static_cast<std::int64_t>(std::min(rule->moved_bytes, bytes));
      };
}

std::unique_ptr<IoEngine> make_fault_engine(std::unique_ptr<IoEngine> inner,
                                            std::shared_ptr<FaultPlan> plan) {
  return std::make_unique<FaultEngine>(std::move(inner), std::move(plan));
}

}  // namespace headrace::testing
