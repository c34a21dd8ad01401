// A stream over a real file in a temporary folder, through engines that sometimes lie.
#include "src/bench/block_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "tests/support/delaying_io_engine.h"
#include "tests/support/fault_io_engine.h"
#include "tests/support/repeated_alarms.h"

namespace headrace::testing {
namespace {

using namespace literals;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

// A write that is said to be done and was never made.
class LostWrite final : public IoTicket::State {
 public:
  LostWrite(HostLease buffer, Bytes bytes) : buffer_(std::move(buffer)), bytes_(bytes) {}
  IoResult wait() override { return {.bytes = bytes_}; }
  bool done() override { return true; }
  HostLease take() override { return std::move(buffer_); }

 private:
  HostLease buffer_;
  Bytes bytes_;
};

class LyingEngine final : public IoEngine {
 public:
  explicit LyingEngine(std::unique_ptr<IoEngine> inner) : inner_(std::move(inner)) {}
  std::string_view name() const override { return "lying"; }
  IoCounters counters() const override { return inner_->counters(); }
  IoTicket submit(IoDirection direction, const IoFile& file, std::uint64_t offset, HostLease buffer,
                  Bytes bytes) override {
    submitted.push_back({direction, offset});
    const bool write = direction == IoDirection::write;
    if (write && loses_writes) return IoTicket(std::make_unique<LostWrite>(std::move(buffer), bytes));
    if (!write && reads_nothing) return IoTicket(std::make_unique<LostWrite>(std::move(buffer), bytes));
    const std::uint64_t place = !write && reads_elsewhere ? (offset == 0 ? bytes : 0) : offset;
    return inner_->submit(direction, file, place, std::move(buffer), bytes);
  }
  bool loses_writes = false, reads_nothing = false, reads_elsewhere = false;
  std::vector<BlockRequest> submitted;

 private:
  std::unique_ptr<IoEngine> inner_;
};

class BlockStreams : public ::testing::Test {
 protected:
  static constexpr Bytes block = 64_KiB, file_bytes = 2_MiB;
  static constexpr std::uint32_t depth = 4;

  BlockStreams() {
    std::string name = (fs::temp_directory_path() / "headrace-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw Error("cannot make a temporary folder");
    folder_ = name;
    scratch_ = std::make_unique<ScratchFile>(folder_);
    engine_ = std::make_unique<LyingEngine>(make_thread_engine({}));
    make_stream(*engine_, true);
    prepare();
  }
  ~BlockStreams() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  void make_stream(IoEngine& engine, bool every_byte) {
    stream_.reset();
    stream_ = std::make_unique<BlockStream>(engine, *scratch_, pattern_, pool_, depth + 1, every_byte);
  }
  void prepare() { stream_->prepare(work(NvmeOperation::write), file_bytes, forever); }
  static BlockWork work(NvmeOperation operation, NvmeAccess access = NvmeAccess::sequential) {
    return {.operation = operation, .access = access, .block_bytes = block, .depth = depth};
  }
  StreamSample run(const BlockWork& work, Bytes bytes) {
    return stream_->run(work, [&](Bytes moved) { return moved < bytes; });
  }
  // Changes a byte behind the engine's back: the file has no name, but this process has it open.
  void corrupt(std::uint64_t offset) {
    const std::string path = "/proc/self/fd/" + std::to_string(scratch_->file().fd());
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ 1));
    file.flush();
    ASSERT_TRUE(file.good());
    file.close();
    scratch_->evict();
  }
  static constexpr auto forever = [](Bytes) { return true; };

  fs::path folder_;
  MemoryBudget budget_{"host", 1_GiB};
  StagingPool pool_{budget_, MemoryTag::staging, 256_KiB, depth + 1};
  const DrivePattern pattern_{7};
  std::unique_ptr<ScratchFile> scratch_;
  std::unique_ptr<LyingEngine> engine_;
  std::unique_ptr<BlockStream> stream_;
};

TEST_F(BlockStreams, preparation_writes_every_block_once_in_order) {
  EXPECT_EQ(stream_->file_bytes(), file_bytes);
  ASSERT_EQ(engine_->submitted.size(), file_bytes / block);
  for (std::size_t i = 0; i < engine_->submitted.size(); ++i)
    EXPECT_EQ(engine_->submitted[i].offset, i * block);
  EXPECT_EQ(scratch_->file().size_bytes(), file_bytes);
}

TEST_F(BlockStreams, preparation_that_is_stopped_leaves_a_file_of_what_was_written) {
  const StreamSample sample =
      stream_->prepare(work(NvmeOperation::write), file_bytes, [](Bytes moved) { return moved < 3 * block; });
  EXPECT_EQ(stream_->file_bytes(), sample.written_bytes);
  EXPECT_LT(sample.written_bytes, file_bytes);
  EXPECT_GE(sample.written_bytes, 3 * block);
}

TEST_F(BlockStreams, blocks_of_every_size_are_right_after_writes_of_every_other) {
  for (const NvmeAccess access : {NvmeAccess::sequential, NvmeAccess::random})
    for (const Bytes written : {16_KiB, 96_KiB, 256_KiB})
      for (const Bytes read : {12_KiB, 64_KiB, 256_KiB}) {
        BlockWork writing = work(NvmeOperation::mixed, access), reading = work(NvmeOperation::read);
        writing.block_bytes = written;
        reading.block_bytes = read;
        run(writing, file_bytes / 4);
        stream_->check_written();
        EXPECT_GE(run(reading, file_bytes).read_bytes, file_bytes);
      }
}

TEST_F(BlockStreams, a_sample_counts_what_moved_and_how_long_each_block_took) {
  const StreamSample sample = run(work(NvmeOperation::mixed), 20 * block);
  EXPECT_EQ(sample.bytes(), sample.blocks * block);
  EXPECT_EQ(sample.latencies.count(), sample.blocks);
  EXPECT_NEAR(static_cast<double>(sample.read_bytes), static_cast<double>(sample.written_bytes), 1.0 * block);
  EXPECT_GT(sample.seconds, 0);
  EXPECT_GT(sample.pattern_cpu_seconds, 0);
}

// Once at least: a sample of no blocks would have no rate.
TEST_F(BlockStreams, as_many_blocks_as_the_depth_are_in_flight_before_the_first_is_waited_for) {
  engine_->submitted.clear();
  std::size_t submitted_at_first = 0;
  stream_->run(work(NvmeOperation::read), [&](Bytes) {
    if (submitted_at_first == 0) submitted_at_first = engine_->submitted.size();
    return false;
  });
  EXPECT_EQ(submitted_at_first, depth);
  EXPECT_EQ(engine_->submitted.size(), depth);
}

// Each block has its own time, and its successor goes as soon as it is there.
TEST_F(BlockStreams, a_slow_block_holds_up_no_other_one) {
  using namespace std::chrono_literals;
  for (const NvmeAccess access : {NvmeAccess::sequential, NvmeAccess::random}) {
    const auto engine = make_delaying_engine(
        make_thread_engine({}),
        {.read = {.fixed = 500us}, .late = DelayPlan::Late{.offset = 2 * block, .time = 300ms}});
    make_stream(*engine, true);
    prepare();
    const auto start = std::chrono::steady_clock::now();
    const StreamSample sample =
        stream_->run(work(NvmeOperation::read, access), [&](Bytes) { return seconds_since(start) < 0.2; });
    EXPECT_GT(sample.blocks, 50u);
    EXPECT_GE(sample.latencies.quantile(1), 0.28);
    EXPECT_LT(sample.latencies.quantile(0.9), 0.05);
  }
}

TEST_F(BlockStreams, latencies_are_the_drives_at_every_depth) {
  using namespace std::chrono_literals;
  const auto engine =
      make_delaying_engine(make_thread_engine({}), {.read = {.fixed = 20ms}});  // waking up late is little
  make_stream(*engine, false);
  prepare();
  for (const std::uint32_t in_flight : {1u, 2u, depth}) {
    BlockWork reads = work(NvmeOperation::read);
    reads.depth = in_flight;
    const StreamSample sample = run(reads, 16 * block);
    EXPECT_NEAR(sample.latencies.quantile(0.5), 0.02 * in_flight, 0.1 * 0.02 * in_flight) << in_flight;
  }
}

TEST_F(BlockStreams, sequential_samples_go_on_where_the_last_one_ended) {
  run(work(NvmeOperation::read), 5 * block);
  const std::uint64_t last = engine_->submitted.back().offset;
  engine_->submitted.clear();
  run(work(NvmeOperation::read), 5 * block);
  EXPECT_GT(engine_->submitted.front().offset, last);
}

TEST_F(BlockStreams, one_flipped_bit_anywhere_is_an_error_that_names_its_offset) {
  for (const std::uint64_t offset : {Bytes{0}, Bytes{5000}, 1_MiB + 4095, file_bytes - 1}) {
    corrupt(offset);
    try {
      run(work(NvmeOperation::read), file_bytes);
      FAIL() << "a flipped bit at " << offset << " was not found";
    } catch (const Error& error) {
      const std::uint64_t told =
          offset % 4096 < 16 ? offset / 4096 * 4096 : offset;  // of a stamp: its sector
      EXPECT_THAT(error.what(), HasSubstr("offset " + std::to_string(told) + " "));
    }
    corrupt(offset);  // back as it was
    make_stream(*engine_, true);
    prepare();
  }
}

TEST_F(BlockStreams, damage_in_every_block_is_found_without_checking_every_byte) {
  make_stream(*engine_, false);
  prepare();
  for (std::uint64_t offset = 2000; offset < file_bytes; offset += block) corrupt(offset);
  EXPECT_THROW(run(work(NvmeOperation::read), 5 * block), Error);
}

TEST_F(BlockStreams, reads_of_another_place_are_found_without_checking_every_byte) {
  make_stream(*engine_, false);
  prepare();
  engine_->reads_elsewhere = true;
  EXPECT_THROW(run(work(NvmeOperation::read), 5 * block), Error);
}

TEST_F(BlockStreams, reads_that_bring_nothing_are_found_though_the_buffer_held_the_right_data) {
  for (int i = 0; i < 3; ++i) run(work(NvmeOperation::read), file_bytes);
  engine_->reads_nothing = true;
  EXPECT_THROW(run(work(NvmeOperation::read), 5 * block), Error);
}

TEST_F(BlockStreams, writes_that_were_lost_are_found_though_the_same_noise_was_there) {
  run(work(NvmeOperation::write), 10 * block);
  EXPECT_NO_THROW(stream_->check_written());
  engine_->loses_writes = true;
  run(work(NvmeOperation::write), 10 * block);
  EXPECT_THROW(stream_->check_written(), Error);
}

TEST_F(BlockStreams, a_failed_transfer_is_an_error_with_its_place) {
  const auto plan = std::make_shared<FaultPlan>();
  plan->add({.direction = IoDirection::read, .first = 6, .count = 1, .code = EIO});
  const auto failing = make_fault_engine(make_thread_engine({}), plan);
  make_stream(*failing, true);
  prepare();
  try {
    run(work(NvmeOperation::read), file_bytes);
    FAIL() << "EIO was not told";
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), EIO);
    EXPECT_EQ(error.offset(), 6 * block);
    EXPECT_EQ(error.length(), block);
  }
  stream_.reset();  // every buffer is given back
  for (std::uint32_t b = 0; b < depth + 1; ++b) EXPECT_TRUE(pool_.try_acquire());
}

TEST_F(BlockStreams, a_scratch_file_has_no_name_and_leftovers_of_a_kill_are_removed) {
  EXPECT_TRUE(fs::is_empty(folder_));
  std::ofstream(folder_ / "headrace-bench-nvme-123-0.tmp") << "left";
  std::ofstream(folder_ / "headrace-bench-nvme-notes.tmp") << "somebody's";
  fs::create_directory(folder_ / "headrace-bench-nvme-9-9.tmp");
  fs::create_symlink("elsewhere", folder_ / "headrace-bench-nvme-7-7.tmp");
  remove_leftover_files(folder_);
  EXPECT_FALSE(fs::exists(folder_ / "headrace-bench-nvme-123-0.tmp"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 3);
}

TEST_F(BlockStreams, a_scratch_file_that_does_not_fit_takes_no_space) {
  ScratchFile other(folder_);
  EXPECT_FALSE(other.reserve(Bytes{1} << 50));
  EXPECT_EQ(other.file().size_bytes(), 0u);
  EXPECT_TRUE(other.reserve(1_MiB));
}

// Some kernels give the reservation of a memory file system up, and all it took, at each signal.
TEST(ScratchFiles, are_reserved_whatever_signals_come) {
  struct statvfs space {};
  if (::statvfs("/dev/shm", &space) != 0 || Bytes{space.f_bavail} * space.f_frsize < 48_MiB)
    GTEST_SKIP() << "there is no space in /dev/shm";
  ScratchFile scratch("/dev/shm");
  const RepeatedAlarms alarms(std::chrono::microseconds(200));
  EXPECT_TRUE(scratch.reserve(32_MiB));
  EXPECT_LT(alarms.count(), alarms.most);
  EXPECT_EQ(scratch.file().size_bytes(), 32_MiB);
}

}  // namespace
}  // namespace headrace::testing
