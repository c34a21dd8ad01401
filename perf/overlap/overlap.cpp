// Question: with parameters and gradients on the host at stage 3, does forward + backward cost no more than
// its slowest lane? Ceiling: the busy seconds of the busiest lane, measured in the same passes. The link is
// paced, the compute of a unit is a sleep of known length, so the figure is about the schedule alone. The
// first pass learns the order of acquires.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <thread>

#include "headrace/elapsed.h"
#include "headrace/engine.h"

namespace headrace {
namespace {

using Seconds = std::chrono::duration<double>;

struct Scenario {
  const char* name;
  double compute_per_upload;  // seconds of a unit's forward compute for each second of its upload
};

struct Measurement {
  double pass_seconds = 0, slowest_lane_seconds = 0;
  std::string slowest_lane;
};

struct Shape {
  int units = 16;
  std::int64_t unit_numel = 1 << 20;
  double upload_seconds = 0.004;
};

void sleep_on_compute(Device& device, double seconds) {
  device.enqueue(Lane::compute, "compute", [seconds] { std::this_thread::sleep_for(Seconds(seconds)); });
}

void run_pass(Engine& engine, Device& device, int units, double forward_seconds) {
  engine.begin_micro_batch();
  for (int u = 0; u < units; ++u) {
    engine.acquire(static_cast<UnitId>(u));
    sleep_on_compute(device, forward_seconds);
    engine.release(static_cast<UnitId>(u));
  }
  for (int u = units; u-- > 0;) {
    const auto unit = static_cast<UnitId>(u);
    engine.acquire(unit);
    std::byte* gradient = engine.gradient_buffer(unit);
    device.fill_zero(Lane::compute, gradient, engine.layout(unit).numel * sizeof(bf16));
    sleep_on_compute(device, 2 * forward_seconds);
    engine.release(unit);
    engine.gradients_ready(unit);
  }
  device.synchronize();
}

Measurement measure(const Scenario& scenario, const Shape& shape, int passes) {
  const double unit_bytes = static_cast<double>(shape.unit_numel) * 2;
  CpuDeviceOptions device_options{.memory_bytes = 256 << 20, .compute_threads = 1};
  device_options.link_bytes_per_second = unit_bytes / shape.upload_seconds;
  const auto device = make_cpu_device(device_options);
  const auto kernels = make_cpu_kernels(*device);
  const auto communicator = make_single_communicator(*device);
  EngineOptions options;
  options.stage = 3;
  options.optimizer_tier = options.gradient_tier = options.parameter_tier = Tier::host;
  Engine engine(*device, *kernels, *communicator, nullptr, options);
  for (int u = 0; u < shape.units; ++u)
    engine.add_unit(
        {fmt::format("unit.{}", u), {{.name = fmt::format("w{}", u), .shape = {shape.unit_numel}}}});
  engine.initialise();
  const double forward_seconds = scenario.compute_per_upload * shape.upload_seconds;
  std::vector<Measurement> rounds;
  for (int pass = 0; pass <= passes; ++pass) {
    std::array<double, lane_count> busy;
    for (std::size_t lane = 0; lane < lane_count; ++lane)
      busy[lane] = device->times(static_cast<Lane>(lane)).busy_seconds;
    const auto start = std::chrono::steady_clock::now();
    run_pass(engine, *device, shape.units, forward_seconds);
    Measurement round{.pass_seconds = seconds_since(start), .slowest_lane = {}};
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      const double seconds = device->times(static_cast<Lane>(lane)).busy_seconds - busy[lane];
      if (seconds <= round.slowest_lane_seconds) continue;
      round.slowest_lane_seconds = seconds;
      round.slowest_lane = name_of(static_cast<Lane>(lane));
    }
    if (pass > 0) rounds.push_back(round);
    TrainingState state{.iteration = static_cast<std::uint64_t>(pass) + 1};
    engine.step(0.0, state);
  }
  const auto ratio = [](const Measurement& m) { return m.pass_seconds / m.slowest_lane_seconds; };
  std::sort(rounds.begin(), rounds.end(), [&](const auto& a, const auto& b) { return ratio(a) < ratio(b); });
  return rounds[rounds.size() / 2];
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  using namespace headrace;
  CLI::App app{"Forward + backward of a stage-3 run with host parameters, against its slowest lane"};
  int passes = 7;
  Shape shape;
  app.add_option("--passes", passes, "measured passes; the median ratio is printed")->capture_default_str();
  app.add_option("--units", shape.units, "units of the model")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  constexpr Scenario scenarios[] = {{"compute bound", 2.0}, {"balanced", 1.0}, {"link bound", 0.4}};
  fmt::print("{:<16}{:>12}{:>14}{:>16}{:>8}\n", "case", "pass ms", "slowest lane", "its busy ms", "ratio");
  for (const Scenario& scenario : scenarios) {
    const Measurement m = measure(scenario, shape, passes);
    fmt::print("{:<16}{:>12.1f}{:>14}{:>16.1f}{:>8.3f}\n", scenario.name, m.pass_seconds * 1e3,
               m.slowest_lane, m.slowest_lane_seconds * 1e3, m.pass_seconds / m.slowest_lane_seconds);
  }
}
