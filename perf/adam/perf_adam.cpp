// Question: how near is the fused optimizer update to what memory allows?
// Ceiling: the same loads and stores with one addition each, through the same pool and the same pieces, in
// the same run. Update and ceiling alternate, so that a noisy neighbour slows both; figures are medians over
// rounds.
#include <fmt/format.h>
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cpu_adam/kernel_table.h"
#include "cpu_adam/update_pieces.h"
#include "headrace/cpu_pool.h"
#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "tests/support/adam_arrays.h"

namespace headrace {
namespace {

struct Options {
  int log2_numel = 24;
  int rounds = 15;
  int threads = 0;
  bool json = false;
};

struct Case {
  std::string name;
  DType gradient_dtype;
  bool low_precision;  // bf16

  // Moved through memory for each element: three fp32 states read and written, the gradient, the copy.
  double bytes_per_element() const {
    return 24.0 + static_cast<double>(size_of(gradient_dtype)) + (low_precision ? 2.0 : 0.0);
  }
};

struct Figures {
  double update_ns, ceiling_ns, ratio;  // per element; ratio is the median of the rounds' ratios
};

// Page-aligned memory in huge pages where the kernel gives them, as the engine's pools have.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw Error(fmt::format("cannot allocate {} bytes", bytes));
    madvise(data_, bytes, MADV_HUGEPAGE);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { munmap(data_, bytes_); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  std::size_t bytes_;
  void* data_;
};

struct State {
  explicit State(std::uint64_t elements)
      : numel(elements),
        master(4 * numel),
        exp_avg(4 * numel),
        exp_avg_sq(4 * numel),
        gradient(4 * numel),
        low(2 * numel) {}

  void fill(DType gradient_dtype) const {
    parallel_ranges(numel, 1 << 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t i = begin; i < end; ++i) {
        const float x =
            static_cast<float>(i * 2654435761u % 1024 + 1) / 1024.0f;  // positive: no denormals on the way
        master.as<float>()[i] = x;
        exp_avg.as<float>()[i] = 0.1f * x;
        exp_avg_sq.as<float>()[i] = 0.01f * x;
        if (gradient_dtype == DType::f32) gradient.as<float>()[i] = x;
        if (gradient_dtype == DType::bf16) gradient.as<bf16>()[i] = to_bf16(x);
        low.as<bf16>()[i] = {};
      }
    });
  }

  test::AdamArrays block(const Case& c) const {
    return {.master = master.as<float>(),
            .exp_avg = exp_avg.as<float>(),
            .exp_avg_sq = exp_avg_sq.as<float>(),
            .gradient = gradient.as<void>(),
            .gradient_dtype = c.gradient_dtype,
            .low_precision = c.low_precision ? low.as<void>() : nullptr,
            .numel = numel};
  }

  std::uint64_t numel;
  Memory master, exp_avg, exp_avg_sq, gradient, low;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

template <class Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return seconds_since(start);
}

// The timed code gives the bits of the scalar kernel.
void verify(const State& state, const Case& c) {
  state.fill(c.gradient_dtype);
  test::AdamArrays head = state.block(c);
  head.numel = std::min<std::uint64_t>(head.numel, 1 << 17);
  optimizer_update_parallel(head, {});
  const std::vector<float> master(head.master, head.master + head.numel);
  state.fill(c.gradient_dtype);
  optimizer_update(head, {}, Isa::scalar);
  HEADRACE_CHECK(std::equal(master.begin(), master.end(), head.master),
                 "{}: bits differ from the scalar kernel", c.name);
}

Figures measure(const Case& c, const State& state, int rounds) {
  verify(state, c);
  state.fill(c.gradient_dtype);
  const test::AdamArrays block = state.block(c);
  const KernelTable& kernels = kernels_of(best_isa());
  const auto update = [&] { optimizer_update_parallel(block, {}); };
  const auto ceiling = [&] {
    const GroupSpan only{.span = block, .group = 0};
    for_each_part({&only, 1},
                  [&](const UpdateSpan& part, std::uint32_t) { kernels.ceiling(part, Stores::cached); });
  };

  update(), ceiling();  // warm
  std::vector<double> update_seconds, ceiling_seconds, ratios;
  for (int round = 0; round < rounds; ++round) {
    update_seconds.push_back(seconds_of(update));
    ceiling_seconds.push_back(seconds_of(ceiling));
    ratios.push_back(ceiling_seconds.back() / update_seconds.back());
  }
  const double to_ns = 1e9 / static_cast<double>(state.numel);
  return {median(update_seconds) * to_ns, median(ceiling_seconds) * to_ns, median(ratios)};
}

int run(const Options& options) {
  set_cpu_threads(options.threads);
  const State state(std::uint64_t{1} << options.log2_numel);
  nlohmann::json results = nlohmann::json::array();
  for (const Case& c : {Case{"fp32", DType::f32, false}, Case{"bf16 gradient and copy", DType::bf16, true}}) {
    const Figures f = measure(c, state, options.rounds);
    const double gbs = c.bytes_per_element() / f.update_ns,
                 ceiling_gbs = c.bytes_per_element() / f.ceiling_ns;
    results.push_back({{"case", c.name},
                       {"value", gbs},
                       {"unit", "GB/s"},
                       {"ns_per_parameter", f.update_ns},
                       {"ceiling", ceiling_gbs},
                       {"ratio", f.ratio},
                       {"rounds", options.rounds}});
    if (!options.json) {
      fmt::print("{:24} {:6.3f} ns/parameter  {:6.2f} GB/s  ceiling {:6.2f} GB/s  ratio {:.3f}\n", c.name,
                 f.update_ns, gbs, ceiling_gbs, f.ratio);
    }
  }
  const nlohmann::json machine = {
      {"isa", name_of(best_isa())}, {"threads", cpu_threads()}, {"numel", state.numel}};
  if (options.json) {
    fmt::print("{}\n",
               nlohmann::json{{"benchmark", "adam"}, {"machine", machine}, {"results", results}}.dump());
  } else {
    fmt::print("{} on {} threads, {} elements, {} rounds\n", name_of(best_isa()), cpu_threads(), state.numel,
               options.rounds);
  }
  return 0;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  headrace::Options options;
  CLI::App app("Fused optimizer update against a ceiling of the same loads and stores");
  app.add_option("--log2-numel", options.log2_numel, "Elements, as a power of two")
      ->check(CLI::Range(10, 32));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 10000));
  app.add_option("--threads", options.threads, "0: this process's share of the machine")
      ->check(CLI::Range(0, 4096));
  app.add_flag("--json", options.json, "One JSON object on stdout");
  CLI11_PARSE(app, argc, argv);
  try {
    return headrace::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "perf_adam: {}\n", error.what());
    return 1;
  }
}
