// Question: does the engine move bytes between a file and memory as fast as fio does, with the same block and
// depth? Ceiling: fio on a file of the same size in the same folder; compare.py runs the two in alternation.
//
// One run: a file of known words (written once before, for a first write is slower and a read of what was
// never written does no I/O) is read or rewritten whole, block by block, `depth` blocks in flight. Every
// block that is read is checked.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "headrace/errors.h"
#include "headrace/io_engine.h"

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Bytes stride = 4096;  // one known word, the offset it stands at, in each

struct Case {
  std::string path, engine = "io_uring", direction = "read", file_bytes = "1GiB", block_bytes = "1MiB";
  std::uint32_t depth = 8;
};

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<std::byte, Free>;

Buffer make_buffer(Bytes bytes) {
  return Buffer(static_cast<std::byte*>(std::aligned_alloc(4096, round_up(bytes, 4096))));
}

void stamp(std::byte* block, std::uint64_t offset, Bytes bytes) {
  for (Bytes at = 0; at < bytes; at += stride) {
    const std::uint64_t word = offset + at;
    std::memcpy(block + at, &word, sizeof(word));
  }
}

void check(const std::byte* block, std::uint64_t offset, Bytes bytes) {
  for (Bytes at = 0; at < bytes; at += stride) {
    std::uint64_t word = 0;
    std::memcpy(&word, block + at, sizeof(word));
    if (word != offset + at) throw Error(fmt::format("wrong data at offset {} of the file", offset + at));
  }
}

// Seconds to move the whole file.
double move_file(IoEngine& engine, const IoFile& file, IoDirection direction, Bytes file_bytes,
                 Bytes block_bytes, std::uint32_t depth) {
  std::vector<Buffer> buffers;
  for (std::uint32_t i = 0; i < depth; ++i) {
    buffers.push_back(make_buffer(block_bytes));
    std::memset(buffers.back().get(), 0, block_bytes);
  }
  struct InFlight {
    std::uint64_t offset;
    IoTicket ticket;
  };
  std::deque<InFlight> in_flight;
  const auto finish_oldest = [&] {
    const IoResult result = in_flight.front().ticket.wait();
    const std::uint64_t offset = in_flight.front().offset;
    if (!result.ok()) throw IoError("transfer", file.path(), offset, block_bytes, result.code);
    if (direction == IoDirection::read) check(in_flight.front().ticket.take().data(), offset, block_bytes);
    in_flight.pop_front();
  };
  const auto start = Clock::now();
  for (std::uint64_t offset = 0; offset < file_bytes; offset += block_bytes) {
    if (in_flight.size() == depth) finish_oldest();
    std::byte* block = buffers[offset / block_bytes % depth].get();
    if (direction == IoDirection::write) stamp(block, offset, block_bytes);
    in_flight.push_back({offset, engine.submit(direction, file, offset,
                                               HostLease::borrowed({block, block_bytes}), block_bytes)});
  }
  while (!in_flight.empty()) finish_oldest();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void run(const Case& options) {
  const Bytes block_bytes = parse_bytes(options.block_bytes, "--block-bytes");
  const Bytes file_bytes = parse_bytes(options.file_bytes, "--file-bytes");
  if (block_bytes == 0 || block_bytes % stride != 0 || file_bytes % block_bytes != 0 || options.depth == 0)
    throw UsageError(
        "--block-bytes must be a multiple of 4KiB, --file-bytes of the block, --depth at least 1.");
  IoEngineOptions engine_options;
  engine_options.queue_depth =
      options.depth * static_cast<std::uint32_t>(divide_up(block_bytes, engine_options.request_bytes));
  const auto engine =
      options.engine == "threads" ? make_thread_engine(engine_options) : make_uring_engine(engine_options);

  const bool exists = ::access(options.path.c_str(), F_OK) == 0;
  IoFile file = IoFile::open(options.path, exists ? IoFile::Mode::read_write : IoFile::Mode::create);
  if (file.size_bytes() != file_bytes) {
    file.preallocate(file_bytes);
    move_file(*engine, file, IoDirection::write, file_bytes, block_bytes, options.depth);
    file.sync_data();
  }
  const auto direction = options.direction == "write" ? IoDirection::write : IoDirection::read;
  const double seconds = move_file(*engine, file, direction, file_bytes, block_bytes, options.depth);
  const nlohmann::json result = {
      {"engine", engine->name()}, {"direction", options.direction},
      {"direct", file.direct()},  {"block_bytes", block_bytes},
      {"depth", options.depth},   {"bytes_per_second", static_cast<double>(file_bytes) / seconds}};
  std::puts(result.dump().c_str());
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  headrace::Case options;
  CLI::App app(
      "Rate of reading or rewriting one file through the I/O engine; one JSON object on standard output.");
  app.add_option("file", options.path, "The file; made and written once when its size differs")->required();
  app.add_option("--engine", options.engine)->check(CLI::IsMember({"io_uring", "threads"}));
  app.add_option("--direction", options.direction)->check(CLI::IsMember({"read", "write"}));
  app.add_option("--file-bytes", options.file_bytes)->capture_default_str();
  app.add_option("--block-bytes", options.block_bytes)->capture_default_str();
  app.add_option("--depth", options.depth)->capture_default_str();
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
