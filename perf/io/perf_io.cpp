// Question: does the engine move bytes between a file and memory as fast as fio does with the same block and
// depth, and at its cost in CPU time? Ceiling: fio on a file of the same size in the same folder; compare.py
// runs the two in alternation.
//
// One run: a file of known words (written once before, for a first write is slower and a read of what was
// never written does no I/O; not by the same run, for a disk reads more slowly just after it) is read or
// rewritten whole, block by block, `depth` blocks in flight. Each block begins with its number and the file's
// generation, set and looked at within the time taken (one word); the other words of the data are checked
// outside of it: what was written is read again, of what was read the blocks that are still in the buffers
// are looked at. The cost of a CRC32C of the same bytes is measured apart.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "headrace/io_batch.h"
#include "headrace/io_engine.h"

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;

// To look at a block costs the processor a miss of its caches, which is not the engine's cost: some are
// enough while the time is taken, the others have their own pass.
constexpr std::uint64_t blocks_per_check = 16;
constexpr Bytes stride = 4096;      // one known word in each
constexpr Bytes shift_bytes = 520;  // --unaligned: a multiple of what headers leave, not of a sector
constexpr Bytes huge_page = 2 << 20;
constexpr double gigabyte = 1e9;

struct Case {
  std::string path, engine = "io_uring", direction = "read", file_bytes = "1GiB", block_bytes = "1MiB";
  std::uint32_t depth = 8, passes = 1;
  std::string request_bytes = "0";
  double pause_seconds = 0;
  bool unregistered = false, unaligned = false, poll_completions = false, poll_submissions = false;
};

struct Cost {
  double seconds = 0, user_seconds = 0, system_seconds = 0;
};

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

// Time and the CPU time of the whole process.
class Meter {
 public:
  Meter() { ::getrusage(RUSAGE_SELF, &before_); }
  Cost read() const {
    rusage now{};
    ::getrusage(RUSAGE_SELF, &now);
    return {.seconds = seconds_since(start_),
            .user_seconds = seconds_of(now.ru_utime) - seconds_of(before_.ru_utime),
            .system_seconds = seconds_of(now.ru_stime) - seconds_of(before_.ru_stime)};
  }

 private:
  rusage before_{};
  Clock::time_point start_ = Clock::now();
};

class Run {
 public:
  Run(IoEngine& engine, const IoFile& file, Bytes file_bytes, Bytes block_bytes, const Case& options)
      : engine_(engine),
        file_(file),
        file_bytes_(file_bytes),
        block_bytes_(block_bytes),
        depth_(options.depth) {
    bytes_ = round_up(block_bytes * depth_ + (options.unaligned ? stride : 0), huge_page);
    const Bytes bytes = bytes_;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(huge_page, bytes)));
    if (memory_ == nullptr) throw Error("no memory for the buffers");
    ::madvise(memory_.get(), bytes, MADV_HUGEPAGE);  // as the engine's pools do, and fio
    std::memset(memory_.get(), 0, bytes);
    shift_ = options.unaligned ? shift_bytes : 0;
    if (!options.unregistered) registration_ = engine.register_memory({memory_.get(), bytes});
  }

  // Every buffer has words of its own and of the generation.
  void stamp(std::uint64_t generation) {
    for (std::uint32_t i = 0; i < depth_; ++i)
      for (Bytes at = 0; at < block_bytes_; at += stride) {
        const std::uint64_t word = word_of(generation, i, at);
        std::memcpy(block(i) + at, &word, sizeof(word));
      }
  }
  void check_all(std::uint64_t generation) {
    move(IoDirection::read, 0, file_bytes_, generation, [&](std::uint32_t buffer, std::uint64_t header) {
      check_header(buffer, header);
      check(buffer, generation);
    });
  }
  void check_buffers(std::uint64_t generation) {
    for (std::uint32_t i = 0; i < depth_; ++i) check(i, generation);
  }
  // Which generation an earlier run with these blocks has left in the file.
  std::optional<std::uint64_t> generation_in_file() {
    const Bytes round = block_bytes_ * depth_;
    const auto check_headers = [this](std::uint32_t buffer, std::uint64_t header) {
      check_header(buffer, header);
    };
    try {
      std::uint64_t word = 0;
      const IoResult first = engine_
                                 .submit(IoDirection::read, file_, 0,
                                         HostLease::borrowed({block(0), block_bytes_}), block_bytes_)
                                 .wait();
      std::memcpy(&word, block(0), sizeof(word));
      const std::uint64_t generation = word >> 48;
      if (!first.ok() || generation == 0) return std::nullopt;  // reserved, and never written
      move(IoDirection::read, 0, round, generation, check_headers);
      check_buffers(generation);
      move(IoDirection::read, file_bytes_ - round, file_bytes_, generation, check_headers);
      check_buffers(generation);
      return generation;
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  void forget_buffers() { std::memset(memory_.get(), 0, bytes_); }

  Cost move(IoDirection direction, std::uint64_t generation, std::uint32_t passes = 1) {
    const Meter meter;
    for (std::uint32_t i = 0; i < passes; ++i)
      move(direction, 0, file_bytes_, generation, [this](std::uint32_t buffer, std::uint64_t header) {
        if (header % blocks_per_check == 0) check_header(buffer, header);
      });
    return meter.read();
  }
  Cost checksum() {
    const Meter meter;
    std::uint32_t state = 0;
    for (Bytes at = 0; at < file_bytes_; at += block_bytes_)
      state = crc32c({block(static_cast<std::uint32_t>(at / block_bytes_ % depth_)), block_bytes_}, state);
    return meter.read();
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  static std::uint64_t word_of(std::uint64_t generation, std::uint32_t buffer, Bytes at) {
    return generation << 48 | std::uint64_t{buffer} << 36 | at;
  }
  static std::uint64_t header_of(std::uint64_t generation, std::uint64_t number) {
    return generation << 48 | number;
  }
  void set_header(std::uint32_t buffer, std::uint64_t header) {
    std::memcpy(block(buffer), &header, sizeof(header));
  }
  void check_header(std::uint32_t buffer, std::uint64_t header) const {
    std::uint64_t word = 0;
    std::memcpy(&word, block(buffer), sizeof(word));
    if (word != header)
      throw Error(fmt::format("block {:#x} of {} came as {:#x}", header, file_.path(), word));
  }
  std::byte* block(std::uint32_t buffer) const { return memory_.get() + shift_ + buffer * block_bytes_; }

  void check(std::uint32_t buffer, std::uint64_t generation) const {
    for (Bytes at = stride; at < block_bytes_; at += stride) {
      std::uint64_t word = 0;
      std::memcpy(&word, block(buffer) + at, sizeof(word));
      if (word != word_of(generation, buffer, at))
        throw Error(fmt::format("wrong data at byte {} of a block of {}", at, file_.path()));
    }
  }

  template <class Use>
  void move(IoDirection direction, Bytes begin, Bytes end, std::uint64_t generation, Use use) {
    std::vector<IoTicket> in_flight(depth_);
    const std::uint64_t header = header_of(generation, begin / block_bytes_);
    const std::uint64_t blocks = (end - begin) / block_bytes_;
    const IoBatch batch(engine_);
    for (std::uint64_t i = 0; i < blocks + depth_; ++i) {
      const auto buffer = static_cast<std::uint32_t>(i % depth_);
      if (IoTicket ended = std::move(in_flight[buffer])) {
        const IoResult result = ended.wait();
        if (!result.ok())
          throw IoError("transfer", file_.path(), begin + (i - depth_) * block_bytes_, block_bytes_,
                        result.code);
        use(buffer, header + i - depth_);
      }
      if (i < blocks && direction == IoDirection::write) set_header(buffer, header + i);
      if (i < blocks)
        in_flight[buffer] = engine_.submit(direction, file_, begin + i * block_bytes_,
                                           HostLease::borrowed({block(buffer), block_bytes_}), block_bytes_);
    }
  }

  IoEngine& engine_;
  const IoFile& file_;
  const Bytes file_bytes_, block_bytes_;
  const std::uint32_t depth_;
  Bytes shift_ = 0, bytes_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
  IoRegistration registration_;
};

std::unique_ptr<IoEngine> make_engine(const Case& options, Bytes block_bytes) {
  IoEngineOptions engine{.request_bytes = parse_bytes(options.request_bytes, "--request-bytes"),
                         .poll_completions = options.poll_completions,
                         .poll_submissions = options.poll_submissions};
  constexpr Bytes smallest_request = 1 << 20;  // what the engine would choose, or more
  const Bytes request = engine.request_bytes != 0 ? engine.request_bytes : smallest_request;
  engine.queue_depth =
      std::min(options.depth * static_cast<std::uint32_t>(divide_up(block_bytes, request)), 512u);
  return options.engine == "threads" ? make_thread_engine(engine) : make_uring_engine(engine);
}

nlohmann::json per_gigabyte(const Cost& cost, Bytes bytes) {
  const double gigabytes = static_cast<double>(bytes) / gigabyte;
  return {{"user", cost.user_seconds / gigabytes},
          {"system", cost.system_seconds / gigabytes},
          {"total", (cost.user_seconds + cost.system_seconds) / gigabytes}};
}

// Disks behind a rate limit save up for a burst while they rest: every contender rests as long.
void pause(const Case& options) {
  std::this_thread::sleep_for(std::chrono::duration<double>(options.pause_seconds));
}

void run(const Case& options) {
  const Bytes block_bytes = parse_bytes(options.block_bytes, "--block-bytes");
  const Bytes file_bytes = parse_bytes(options.file_bytes, "--file-bytes");
  if (block_bytes == 0 || block_bytes % stride != 0 || options.depth == 0 ||
      file_bytes % (block_bytes * options.depth) != 0)
    throw UsageError("--block-bytes must be a multiple of 4KiB, --file-bytes of the block times --depth.");
  const auto engine = make_engine(options, block_bytes);
  const bool exists = ::access(options.path.c_str(), F_OK) == 0;
  IoFile file = IoFile::open(options.path, exists ? IoFile::Mode::read_write : IoFile::Mode::create);
  if (!file.direct())
    throw Error(
        fmt::format("{} refuses direct I/O: what is measured would be the page cache. Choose a local disk.",
                    options.path));
  if (file.size_bytes() != file_bytes) file.preallocate(file_bytes);
  Run run(*engine, file, file_bytes, block_bytes, options);

  const bool writes = options.direction == "write";
  auto generation = run.generation_in_file();
  if (!generation) {
    generation = 1;
    run.stamp(*generation);
    run.move(IoDirection::write, *generation);
    file.sync_data();
  }
  Cost cost;
  if (writes) {
    const std::uint64_t next = *generation % 0xffff + 1;
    run.stamp(next);
    pause(options);
    cost = run.move(IoDirection::write, next, options.passes);
    run.forget_buffers();
    run.check_all(next);
  } else {
    run.forget_buffers();
    pause(options);
    cost = run.move(IoDirection::read, *generation, options.passes);
    run.check_buffers(*generation);
  }
  const Cost crc = run.checksum();
  const Bytes moved_bytes = file_bytes * options.passes;
  const nlohmann::json result = {{"engine", engine->name()},
                                 {"direction", options.direction},
                                 {"direct", file.direct()},
                                 {"block_bytes", block_bytes},
                                 {"depth", options.depth},
                                 {"registered", engine->counters().registered_bytes > 0},
                                 {"bytes_per_second", static_cast<double>(moved_bytes) / cost.seconds},
                                 {"cpu_seconds_per_gb", per_gigabyte(cost, moved_bytes)},
                                 {"crc_cpu_seconds_per_gb", per_gigabyte(crc, file_bytes)["total"]}};
  std::puts(result.dump().c_str());
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  headrace::Case options;
  CLI::App app(
      "Rate and CPU time of reading or rewriting one file through the I/O engine; one JSON object on "
      "standard "
      "output.");
  app.add_option("file", options.path, "The file; made when it does not exist")->required();
  app.add_option("--engine", options.engine)->check(CLI::IsMember({"io_uring", "threads"}));
  app.add_option("--direction", options.direction)->check(CLI::IsMember({"read", "write"}));
  app.add_option("--file-bytes", options.file_bytes)->capture_default_str();
  app.add_option("--passes", options.passes, "over the file")->capture_default_str();
  app.add_option("--block-bytes", options.block_bytes)->capture_default_str();
  app.add_option("--depth", options.depth)->capture_default_str();
  app.add_option("--request-bytes", options.request_bytes, "0: chosen from the device")
      ->capture_default_str();
  app.add_option("--pause-seconds", options.pause_seconds, "rest before the time is taken");
  app.add_flag("--unregistered", options.unregistered, "do not register the buffers");
  app.add_flag("--unaligned", options.unaligned, "buffers that direct I/O cannot use");
  app.add_flag("--poll-completions", options.poll_completions);
  app.add_flag("--poll-submissions", options.poll_submissions);
  CLI11_PARSE(app, argc, argv);
  try {
    headrace::run(options);
  } catch (const headrace::UsageError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
