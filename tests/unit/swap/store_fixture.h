// Folders, buffers, engines and contents for the tests of the swap store.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headrace/errors.h"
#include "headrace/io_engine.h"
#include "headrace/state_hash.h"
#include "headrace/swap_store.h"
#include "tests/support/temporary_folder.h"

namespace headrace::testing {

// Where flushing costs nothing: for copies whose flushes prove nothing.
inline std::filesystem::path memory_folder() {
  return std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path();
}

class Buffer {
 public:
  explicit Buffer(Bytes bytes) : pages_(divide_up(bytes, sizeof(Page)) + 1), bytes_(bytes) {
    std::memset(pages_.data(), 0xEE, pages_.size() * sizeof(Page));
  }
  std::span<std::byte> memory() { return std::as_writable_bytes(std::span(pages_)).first(bytes_); }
  HostLease lease() { return HostLease::borrowed(memory()); }

 private:
  struct alignas(4096) Page {
    std::byte bytes[4096];
  };
  std::vector<Page> pages_;
  Bytes bytes_;
};

// Contents that are known from a seed alone.
inline void fill(std::span<std::byte> out, std::uint64_t seed) {
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::byte>(splitmix64(seed * 0x10001 + i / 8) >> (8 * (i % 8)));
}
inline bool holds(std::span<const std::byte> data, std::uint64_t seed) {
  std::vector<std::byte> expected(data.size());
  fill(expected, seed);
  return std::equal(data.begin(), data.end(), expected.begin());
}

inline void write_block(SwapStore& store, std::uint32_t block, std::uint64_t seed) {
  Buffer buffer(store.buffer_bytes(block));
  fill(buffer.memory().first(store.blocks()[block].bytes), seed);
  store.write(block, buffer.lease()).wait();
}
inline bool block_holds(SwapStore& store, std::uint32_t block, std::uint64_t seed) {
  Buffer buffer(store.buffer_bytes(block));
  store.read(block, buffer.lease()).wait();
  return holds(buffer.memory().first(store.blocks()[block].bytes), seed);
}

// Every block of a step has its own contents.
inline std::uint64_t seed_of(std::uint64_t step, std::uint32_t block) {
  return step * 1000 + block;
}
inline void write_step(SwapStore& store, std::uint64_t step) {
  for (std::uint32_t block = 0; block < store.blocks().size(); ++block)
    write_block(store, block, seed_of(step, block));
}
inline void commit_step(SwapStore& store, std::uint64_t step) {
  write_step(store, step);
  store.commit({step, "metadata of step " + std::to_string(step)});
}
inline bool holds_step(SwapStore& store, std::uint64_t step) {
  for (std::uint32_t block = 0; block < store.blocks().size(); ++block)
    if (!block_holds(store, block, seed_of(step, block))) return false;
  return true;
}
inline std::vector<std::uint64_t> steps_of(const SwapStore& store) {
  std::vector<std::uint64_t> steps;
  for (const SwapCommit& commit : store.commits()) steps.push_back(commit.step);
  return steps;
}

inline std::vector<SwapBlock> blocks_of(std::vector<Bytes> sizes) {
  std::vector<SwapBlock> blocks;
  for (std::size_t i = 0; i < sizes.size(); ++i) blocks.push_back({"block" + std::to_string(i), sizes[i]});
  return blocks;
}
inline const std::vector<Bytes> odd_sizes = {4096, 1, 0, 12289, 511, 8192};

// The message of the error of type E that `action` throws; fails the test otherwise.
template <class E, class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

// Flips one bit of a file.
inline void flip_bit(const std::string& path, std::uint64_t offset) {
  std::FILE* file = std::fopen(path.c_str(), "r+b");
  ASSERT_NE(file, nullptr) << path;
  std::fseek(file, static_cast<long>(offset), SEEK_SET);
  const int byte = std::fgetc(file);
  std::fseek(file, static_cast<long>(offset), SEEK_SET);
  std::fputc(byte ^ 0x10, file);
  std::fclose(file);
}

// Runs on the engine named by the parameter.
class OnBothEngines : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "threads") {
      engine_ = make_thread_engine({});
      return;
    }
    try {
      engine_ = make_uring_engine({});
    } catch (const Error& error) {
      GTEST_SKIP() << "no io_uring here: " << error.what();
    }
  }
  IoEngine& engine() { return *engine_; }
  SwapStoreOptions options(Durability durability = Durability::step) const {
    return {{folder_.path("rank-00000")}, durability, R"({"world_size":2})"};
  }
  std::unique_ptr<SwapStore> create(const std::vector<Bytes>& sizes,
                                    Durability durability = Durability::step) {
    return SwapStore::create(options(durability), blocks_of(sizes), engine());
  }
  std::unique_ptr<SwapStore> open() { return SwapStore::open(options(), engine()); }

  TemporaryFolder folder_;

 private:
  std::unique_ptr<IoEngine> engine_;
};
inline const auto both_engines = ::testing::Values("threads", "io_uring");
inline std::string engine_test_name(const ::testing::TestParamInfo<const char*>& info) {
  return info.param;
}

}  // namespace headrace::testing
