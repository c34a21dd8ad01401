// What to change when a plan does not fit: the alternatives are planned in order of what they cost at run
// time.
#include <algorithm>
#include <functional>

#include "headrace/errors.h"
#include "headrace/planner.h"

namespace headrace {
namespace {

struct Alternative {
  std::string flags;  // as the user would type them
  PlanRequest request;
};

bool legal_and_fits(const PlanRequest& request) {
  try {
    return plan_memory(request).fits();
  } catch (const UsageError&) {
    return false;
  }
}

void add_flag(std::string& flags, std::string_view flag) {
  if (!flags.empty()) flags += ' ';
  flags += flag;
}

// One change each, cheapest first. A change that is already made is left out.
using Change = std::function<bool(PlanRequest&, std::string&)>;
std::vector<Change> changes() {
  const auto tier = [](Tier EngineOptions::*member, std::string_view option, Tier target,
                       std::string_view name) {
    return [=](PlanRequest& request, std::string& flags) {
      if (request.engine.*member >= target) return false;
      request.engine.*member = target;
      add_flag(flags, fmt::format("--offload-{} {}", option, name));
      if (target == Tier::nvme && request.engine.swap_directories.empty() &&
          flags.find("--swap-path") == std::string::npos)
        add_flag(flags, "--swap-path DIR");
      return true;
    };
  };
  const auto stage = [](PlanRequest& request, std::string& flags) {
    if (request.engine.stage == 3) return false;
    request.engine.stage = 3;
    add_flag(flags, "--stage 3");
    return true;
  };
  const auto recompute = [](PlanRequest& request, std::string& flags) {
    if (!request.model_memory_with_recompute) return false;
    request.model_memory = *request.model_memory_with_recompute;
    request.model_memory_with_recompute.reset();
    add_flag(flags, "--recompute");
    return true;
  };
  return {recompute,
          tier(&EngineOptions::optimizer_tier, "optimizer", Tier::host, "cpu"),
          tier(&EngineOptions::optimizer_tier, "optimizer", Tier::nvme, "nvme"),
          stage,
          tier(&EngineOptions::gradient_tier, "gradients", Tier::host, "cpu"),
          tier(&EngineOptions::parameter_tier, "parameters", Tier::host, "cpu"),
          tier(&EngineOptions::gradient_tier, "gradients", Tier::nvme, "nvme"),
          tier(&EngineOptions::parameter_tier, "parameters", Tier::nvme, "nvme")};
}

// Every subset of the changes, those with fewer and cheaper members first.
std::vector<Alternative> alternatives(const PlanRequest& request) {
  const auto all = changes();
  std::vector<std::uint32_t> subsets;
  for (std::uint32_t subset = 1; subset < 1u << all.size(); ++subset) subsets.push_back(subset);
  std::stable_sort(subsets.begin(), subsets.end(), [](std::uint32_t a, std::uint32_t b) {
    return __builtin_popcount(a) < __builtin_popcount(b);
  });
  std::vector<Alternative> result;
  for (const std::uint32_t subset : subsets) {
    Alternative alternative{"", request};
    bool applies = true;
    for (std::size_t c = 0; c < all.size() && applies; ++c)
      if (subset >> c & 1) applies = all[c](alternative.request, alternative.flags);
    if (applies) result.push_back(std::move(alternative));
  }
  return result;
}

// A size of buffers that costs speed alone: the largest value of those halved from the present one that fits.
struct Knob {
  std::string_view flag;
  std::uint64_t floor;
  std::uint64_t (*get)(const EngineOptions&);
  void (*set)(EngineOptions&, std::uint64_t);
};
constexpr Knob knobs[] = {
    {"--save-buffers", 1, [](const EngineOptions& o) { return std::uint64_t{o.snapshot_buffers}; },
     [](EngineOptions& o, std::uint64_t value) { o.snapshot_buffers = static_cast<std::uint32_t>(value); }},
    {"--parameter-buffers", 1, [](const EngineOptions& o) { return std::uint64_t{o.parameter_buffers}; },
     [](EngineOptions& o, std::uint64_t value) { o.parameter_buffers = static_cast<std::uint32_t>(value); }},
    {"--gradient-buffers", 1, [](const EngineOptions& o) { return std::uint64_t{o.gradient_buffers}; },
     [](EngineOptions& o, std::uint64_t value) { o.gradient_buffers = static_cast<std::uint32_t>(value); }},
    {"--swap-block", 256 << 10, [](const EngineOptions& o) { return std::uint64_t{o.swap_block_bytes}; },
     [](EngineOptions& o, std::uint64_t value) { o.swap_block_bytes = value; }},
    {"--bucket", 64 << 10, [](const EngineOptions& o) { return std::uint64_t{o.bucket_bytes}; },
     [](EngineOptions& o, std::uint64_t value) { o.bucket_bytes = value; }},
    {"--swap-buffers", 3, [](const EngineOptions& o) { return std::uint64_t{o.swap_buffers}; },
     [](EngineOptions& o, std::uint64_t value) { o.swap_buffers = static_cast<std::uint32_t>(value); }},
    {"--prefetch-units", 0, [](const EngineOptions& o) { return std::uint64_t{o.prefetch_units}; },
     [](EngineOptions& o, std::uint64_t value) { o.prefetch_units = static_cast<std::uint32_t>(value); }}};

std::string size_flag(const Knob& knob, std::uint64_t value) {
  constexpr std::uint64_t kibibyte = 1 << 10;
  if (knob.flag != "--swap-block" && knob.flag != "--bucket") return fmt::format("{} {}", knob.flag, value);
  return value % kibibyte == 0 ? fmt::format("{} {}KiB", knob.flag, value / kibibyte)
                               : fmt::format("{} {}", knob.flag, value);
}

// The least that the buffers must give up, if that is enough: all at their floors, then each, in order, as
// large again as still fits.
std::optional<Alternative> smaller_buffers(const Alternative& given) {
  Alternative result = given;
  for (const Knob& knob : knobs)
    knob.set(result.request.engine, std::min(knob.floor, knob.get(given.request.engine)));
  if (!legal_and_fits(result.request)) return std::nullopt;
  for (auto knob = std::rbegin(knobs); knob != std::rend(knobs); ++knob) {
    const std::uint64_t present = knob->get(given.request.engine);
    std::uint64_t value = present;
    for (; value > knob->floor; value = std::max(value / 2, knob->floor)) {
      knob->set(result.request.engine, value);
      if (legal_and_fits(result.request)) break;
    }
    knob->set(result.request.engine, value);
    if (value != present) add_flag(result.flags, size_flag(*knob, value));
  }
  return result;
}

std::string raised_limits(const MemoryPlan& plan) {
  constexpr Bytes mebibyte = 1 << 20;
  std::string flags;
  if (plan.device_limit != 0 && plan.device.total() > plan.device_limit)
    add_flag(flags, fmt::format("--device-memory {}MiB", divide_up(plan.device.total(), mebibyte)));
  if (plan.host_limit != 0 && plan.host.total() > plan.host_limit)
    add_flag(flags, fmt::format("--host-memory {}MiB", divide_up(plan.host.total(), mebibyte)));
  return flags;
}

// The fewest ranks, doubling, at which a sharded run fits.
std::string more_ranks(PlanRequest request) {
  std::string flags;
  if (request.engine.stage != 3) request.engine.stage = 3, flags = "--stage 3 ";
  for (int factor = 2; factor <= 64; factor *= 2) {
    PlanRequest larger = request;
    larger.world_size *= factor;
    if (legal_and_fits(larger)) return fmt::format("{}on {} ranks", flags, larger.world_size);
  }
  return {};
}

PlanRequest without_spare_cache(PlanRequest request) {
  if (request.cache_is_spare) request.engine.swap_cache_bytes = 0;
  return request;
}

}  // namespace

std::string smallest_change_that_fits(const PlanRequest& asked) {
  const PlanRequest request = without_spare_cache(asked);
  const MemoryPlan plan = plan_memory(request);
  if (plan.fits()) return {};
  const std::string limits = raised_limits(plan);
  const std::string otherwise =
      limits.empty() ? " on this machine" : fmt::format(", or as it is with {}", limits);
  const auto found = [&](const std::string& flags) {
    return fmt::format("It fits with {}{}.", flags, otherwise);
  };
  if (const auto smaller = smaller_buffers({"", request})) return found(smaller->flags);
  const std::vector<Alternative> all = alternatives(request);
  for (const Alternative& alternative : all)
    if (legal_and_fits(alternative.request)) return found(alternative.flags);
  for (const Alternative& alternative : all)
    if (const auto smaller = smaller_buffers(alternative)) return found(smaller->flags);
  if (const std::string ranks = more_ranks(request); !ranks.empty())
    return fmt::format("It fits {}{}.", ranks, limits.empty() ? " of such machines" : otherwise);
  return limits.empty()
             ? "No placement fits this machine; a smaller --batch-size or --sequence-length needs less."
             : fmt::format("It fits with {}.", limits);
}

std::optional<int> smallest_stage_that_fits(const PlanRequest& request) {
  for (int stage = 0; stage <= 3; ++stage) {
    PlanRequest candidate = without_spare_cache(request);
    candidate.engine.stage = stage;
    if (stage < 3) candidate.engine.parameter_tier = Tier::device;
    if (stage < 2) candidate.engine.gradient_tier = Tier::device;
    if (legal_and_fits(candidate)) return stage;
  }
  return std::nullopt;
}

}  // namespace headrace
