// Reading slices ahead: whatever is expected, asked for and cut, the elements are those of the files, and
// nothing is read that was not asked for.
#include "src/checkpoint/slice_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <random>

#include "headrace/checkpoint.h"
#include "headrace/errors.h"
#include "tests/support/temporary_folder.h"

namespace headrace::testing {
namespace {

// Counts what passes to a thread engine.
class CountingEngine final : public IoEngine {
 public:
  std::string_view name() const override { return "counting"; }
  IoTicket submit(IoDirection direction, const IoFile& file, std::uint64_t offset, HostLease buffer,
                  Bytes bytes) override {
    ++reads;
    read_bytes += bytes;
    return engine_->submit(direction, file, offset, std::move(buffer), bytes);
  }
  IoCounters counters() const override { return engine_->counters(); }

  std::uint64_t reads = 0;
  Bytes read_bytes = 0;

 private:
  std::unique_ptr<IoEngine> engine_ = make_thread_engine({});
};

class SliceReaderTest : public ::testing::Test {
 protected:
  // One file: of every parameter, pieces of at most `piece` elements, all arrays of one behind another.
  void write(const std::vector<std::uint64_t>& numels, std::uint64_t piece, StateFormat format) {
    manifest_ = {};
    manifest_.states = format;
    const std::vector<StoredArray> arrays = stored_arrays(format);
    std::mt19937_64 draw(7);
    std::string file;
    for (std::uint32_t p = 0; p < numels.size(); ++p) {
      manifest_.parameters.push_back({fmt::format("p{}", p), {static_cast<std::int64_t>(numels[p])}});
      for (std::uint64_t first = 0; first < numels[p]; first += piece) {
        const std::uint64_t numel = std::min(piece, numels[p] - first);
        for (std::uint32_t a = 0; a < arrays.size(); ++a) {
          std::string bytes(arrays[a].bytes_of(numel), '\0');
          for (char& c : bytes) c = static_cast<char>(draw());
          manifest_.slices.push_back({.parameter = p,
                                      .array = a,
                                      .file = 0,
                                      .crc32c = crc32c(std::as_bytes(std::span(bytes))),
                                      .first = first,
                                      .numel = numel,
                                      .begin = file.size()});
          file += bytes;
        }
      }
    }
    manifest_.files.push_back({.name = "file", .bytes = file.size(), .header_bytes = 0, .header_crc32c = 0});
    std::ofstream(folder_.path("file"), std::ios::binary | std::ios::trunc) << file;
    file_ = std::move(file);
  }

  void open() {
    reader_.reset();
    memory_ = HostBuffer(budget_, MemoryTag::staging, SliceReader::memory_bytes(manifest_));
    engine_ = CountingEngine();
    reader_.emplace(folder_.path(), manifest_, engine_, memory_.memory());
  }

  // Reads a range and compares all arrays of it with the file.
  void check(const ParameterRange& range) {
    const std::vector<StoredArray> arrays = stored_arrays(manifest_.states);
    std::uint64_t next = range.first;
    reader_->read(range.parameter, range.first, range.numel,
                  [&](std::uint64_t at, std::uint64_t numel, const StateArrays& states) {
                    for (std::uint32_t a = 0; a < arrays.size(); ++a)
                      compare(range.parameter, a, next, at, numel, states);
                    next += numel;
                  });
    EXPECT_EQ(next, range.first + range.numel);
  }

  void compare(std::uint32_t parameter, std::uint32_t array, std::uint64_t element, std::uint64_t at,
               std::uint64_t numel, const StateArrays& states) {
    const StoredArray kind = stored_arrays(manifest_.states)[array];
    const auto slice = std::ranges::find_if(manifest_.slices, [&](const ManifestSlice& one) {
      return one.parameter == parameter && one.array == array && one.first <= element &&
             element < one.first + one.numel;
    });
    ASSERT_EQ(element - slice->first, at);
    const Bytes skipped = kind.bytes_of(at), bytes = kind.bytes_of(at + numel) - skipped;
    const std::byte* from =
        kind.moment < 0 ? states.master : states.moments[static_cast<std::size_t>(kind.moment)].values;
    ASSERT_EQ(std::string_view(reinterpret_cast<const char*>(from) + skipped, bytes),
              std::string_view(file_).substr(slice->begin + skipped, bytes))
        << kind.name << " of parameter " << parameter << " from " << element;
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(from) % alignof(float), 0u);
  }

  std::vector<ParameterRange> whole() const {
    std::vector<ParameterRange> ranges;
    for (std::uint32_t p = 0; p < manifest_.parameters.size(); ++p)
      ranges.push_back({p, 0, manifest_.parameters[p].numel()});
    return ranges;
  }

  TemporaryFolder folder_;
  Manifest manifest_;
  std::string file_;
  CountingEngine engine_;
  MemoryBudget budget_{"host", Bytes{1} << 30};
  HostBuffer memory_;
  std::optional<SliceReader> reader_;
};

const StateFormat narrow{.master = MasterDType::f32, .moments = MomentDType::bf16};

TEST_F(SliceReaderTest, what_is_expected_is_read_ahead_once_and_right_whatever_its_sizes) {
  for (const StateFormat& format : {StateFormat{}, narrow}) {
    write({70001, 1, 3, 0, 12345, 1 << 20, 2 << 20, 7}, 40000, format);
    open();
    reader_->expect(whole());
    for (const ParameterRange& range : whole()) {
      check(range);
      if (range.parameter == 0) {  // of two slices; far more are on their way
        EXPECT_GE(engine_.reads, 2 * 3 * 3u);
      }
    }
    EXPECT_EQ(engine_.read_bytes, file_.size());
  }
}

TEST_F(SliceReaderTest, nothing_is_read_ahead_that_is_not_expected) {
  write({200000, 200000}, 50000, {});
  open();
  reader_->expect(
      {{1, 60000, 30000}, {1, 90000, 20000}, {0, 0, 1}});  // slices 1 and 2 of one, 0 of the other
  check({1, 60000, 30000});
  check({1, 90000, 20000});
  check({0, 0, 1});
  EXPECT_EQ(engine_.reads, 3 * 3u);
}

TEST_F(SliceReaderTest, what_was_not_expected_is_read_all_the_same) {
  write({70001, 3, 500000}, 40000, {});
  open();
  reader_->expect(whole());
  check({2, 100, 7});
  check({0, 0, 70001});
  reader_->expect(whole());
  check({0, 5, 10});
  check({0, 69999, 2});
  check({1, 0, 3});
  reader_->expect({{2, 0, 500000}});
  check({2, 0, 250000});
  reader_->expect({{2, 250000, 250000}});
  check({2, 250000, 250000});
}

TEST_F(SliceReaderTest, slices_larger_than_the_memory_of_a_checkpoint_are_read_one_at_a_time) {
  write({7 << 20, 3 << 20}, 3 << 20, {});
  ASSERT_GT(SliceReader::memory_bytes(manifest_), checkpoint_memory_bytes);
  open();
  reader_->expect(whole());
  for (const ParameterRange& range : whole()) check(range);
  EXPECT_EQ(engine_.read_bytes, file_.size());
}

TEST_F(SliceReaderTest, damage_is_told_when_the_slice_is_asked_for_and_each_time) {
  write({120000}, 40000, {});
  file_[file_.size() / 2] ^= 1;  // the second slice
  std::ofstream(folder_.path("file"), std::ios::binary | std::ios::trunc) << file_;
  open();
  reader_->expect(whole());
  check({0, 0, 40000});
  EXPECT_THROW(check({0, 40000, 40000}), CorruptData);
  EXPECT_THROW(check({0, 40000, 40000}), CorruptData);
  check({0, 80000, 40000});
}

TEST(ReadRing, parts_never_overlap_and_lie_as_their_offsets_do) {
  constexpr Bytes size = 64 << 10, page = 4096;
  MemoryBudget budget("host", size);
  const HostBuffer memory(budget, MemoryTag::staging, size);
  ReadRing ring(memory.memory());
  std::deque<std::vector<std::span<std::byte>>> taken;
  std::mt19937_64 draw(3);
  std::uint64_t given = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<ReadRing::Part> parts;
    Bytes most = 0;
    for (std::uint64_t p = 0; p < 1 + draw() % 3; ++p) {
      parts.push_back({1 + draw() % 12000, draw() % 9000});
      most += ReadRing::most_bytes_of(parts.back().bytes);
    }
    const auto spans = ring.take(parts);
    ASSERT_TRUE(spans || !taken.empty() || most > size);
    if (!spans) {
      ring.give_back_oldest();
      taken.pop_front();
      continue;
    }
    ++given;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const std::span<std::byte> one = (*spans)[p];
      ASSERT_EQ(one.size(), parts[p].bytes);
      ASSERT_GE(one.data(), memory.data());
      ASSERT_LE(one.data() + one.size(), memory.data() + size);
      if (parts[p].offset % 4 == 0) {
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(one.data()) % page, parts[p].offset % page);
      }
    }
    taken.push_back(*spans);
    std::vector<std::span<std::byte>> all;
    for (const auto& set : taken) all.insert(all.end(), set.begin(), set.end());
    std::ranges::sort(all, {}, [](const auto& one) { return one.data(); });
    for (std::size_t k = 1; k < all.size(); ++k)
      ASSERT_LE(all[k - 1].data() + all[k - 1].size(), all[k].data());
    if (draw() % 4 == 0) ring.give_back_oldest(), taken.pop_front();
  }
  EXPECT_GT(given, 5000u);
}

}  // namespace
}  // namespace headrace::testing
