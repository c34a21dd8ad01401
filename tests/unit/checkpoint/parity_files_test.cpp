// Parity over files of any sizes, written by any number of ranks: against sums over the whole files.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <random>

#include "headrace/device.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/memory.h"
#include "headrace/parity_code.h"
#include "src/checkpoint/checkpoint_stripes.h"
#include "src/checkpoint/parity.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_communicator.h"

namespace headrace::testing {
namespace {

using Contents = std::vector<std::byte>;

Contents random_bytes(std::size_t bytes, std::uint32_t seed) {
  std::mt19937_64 draw(seed);
  std::vector<std::uint64_t> words(divide_up(bytes, sizeof(std::uint64_t)));
  for (std::uint64_t& word : words) word = draw();
  const std::span<const std::byte> drawn = std::as_bytes(std::span(words)).first(bytes);
  return {drawn.begin(), drawn.end()};
}

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

class ParityFiles : public ::testing::Test {
 protected:
  // Files without slices: each is all header.
  void write_shards(const std::vector<std::size_t>& sizes) {
    manifest_ = {};
    contents_.clear();
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
      contents_.push_back(random_bytes(sizes[rank], static_cast<std::uint32_t>(rank)));
      const std::string name = "shard-" + std::to_string(rank);
      write_file(folder_.path(name), contents_.back());
      manifest_.files.push_back({.name = name,
                                 .bytes = sizes[rank],
                                 .header_bytes = sizes[rank],
                                 .header_crc32c = crc32c(contents_.back())});
    }
  }

  ManifestParity write(std::uint32_t rows, Bytes memory_bytes) {
    ManifestParity parity;
    const std::string folder = folder_.path();
    run_ranks(static_cast<int>(contents_.size()), [&](int rank, const std::shared_ptr<ThreadHub>& hub) {
      const auto device = make_cpu_device({.memory_bytes = 1 << 20, .compute_threads = 1});
      const auto communicator = make_thread_communicator(hub, *device, rank);
      const auto io = make_thread_engine({});
      MemoryBudget budget("host", memory_bytes);
      const HostBuffer memory(budget, MemoryTag::staging, memory_bytes);
      ManifestParity own = write_parity({.folder = folder,
                                         .manifest = manifest_,
                                         .rows = rows,
                                         .io = *io,
                                         .communicator = *communicator,
                                         .device = *device,
                                         .memory = memory.memory()});
      if (rank == static_cast<int>(contents_.size()) - 1) parity = std::move(own);
    });
    return parity;
  }

  // Of the files as wholes.
  std::vector<Contents> expected_rows(std::uint32_t rows) const {
    std::size_t longest = 0;
    for (const Contents& one : contents_) longest = std::max(longest, one.size());
    std::vector<Contents> padded = contents_, sums(rows, Contents(longest));
    std::vector<const std::byte*> data;
    std::vector<std::byte*> parity;
    for (Contents& one : padded) one.resize(longest), data.push_back(one.data());
    for (Contents& one : sums) parity.push_back(one.data());
    ParityCode(static_cast<std::uint32_t>(padded.size()), rows).encode(data, parity, longest);
    return sums;
  }

  void expect_sums(const std::vector<std::uint32_t>& sums, const Contents& contents, Bytes stripe_bytes) {
    ASSERT_EQ(sums.size(), divide_up(contents.size(), stripe_bytes));
    for (std::size_t s = 0; s < sums.size(); ++s) {
      const std::span<const std::byte> rest = std::span(contents).subspan(s * stripe_bytes);
      EXPECT_EQ(sums[s], crc32c(rest.first(std::min<std::size_t>(rest.size(), stripe_bytes)))) << s;
    }
  }

  TemporaryFolder folder_;
  Manifest manifest_;
  std::vector<Contents> contents_;
};

constexpr std::size_t mebibyte = std::size_t{1} << 20;
const std::vector<std::size_t> various_sizes[] = {{1},
                                                  {3 * mebibyte + 5},
                                                  {4096, 4097},
                                                  {2 * mebibyte + 1, 17, mebibyte},
                                                  {5000, 70001, 1, 3 * mebibyte - 1}};

TEST_F(ParityFiles, rows_and_checksums_are_those_of_the_whole_files_whatever_the_sizes_ranks_and_memory) {
  for (const std::vector<std::size_t>& sizes : various_sizes)
    for (const std::uint32_t rows : {1u, 2u, 5u})
      for (const Bytes memory : {Bytes{512} << 10, Bytes{16} << 20}) {
        SCOPED_TRACE(std::to_string(sizes.size()) + " ranks, " + std::to_string(rows) + " rows");
        write_shards(sizes);
        const ManifestParity parity = write(rows, memory);
        const std::vector<Contents> expected = expected_rows(rows);
        ASSERT_EQ(parity.files.size(), rows);
        for (std::uint32_t row = 0; row < rows; ++row) {
          EXPECT_EQ(files::read_file(folder_.path(parity.files[row].name)), expected[row]) << row;
          expect_sums(parity.crc32c[sizes.size() + row], expected[row], parity.stripe_bytes);
        }
        for (std::size_t rank = 0; rank < sizes.size(); ++rank)
          expect_sums(parity.crc32c[rank], contents_[rank], parity.stripe_bytes);
      }
}

TEST_F(ParityFiles, one_row_over_one_rank_is_a_mirror) {
  write_shards({mebibyte + 3});
  const ManifestParity parity = write(1, Bytes{16} << 20);
  EXPECT_EQ(files::read_file(folder_.path(parity.files[0].name)), contents_[0]);
}

TEST_F(ParityFiles, as_many_pieces_as_there_are_rows_are_rebuilt_in_every_stripe_and_no_more) {
  const auto io = make_thread_engine({});
  for (const std::vector<std::size_t>& sizes : various_sizes)
    for (const std::uint32_t rows : {1u, 2u}) {
      write_shards(sizes);
      manifest_.parity = write(rows, Bytes{16} << 20);
      MemoryBudget budget("host", Bytes{8} << 20);
      const HostBuffer memory(budget, MemoryTag::staging, CheckpointStripes::memory_bytes(manifest_));
      for (std::uint32_t first = 0; first < manifest_.file_count(); ++first) {
        std::vector<Contents> good;
        for (std::uint32_t f = 0; f < manifest_.file_count(); ++f)
          good.push_back(files::read_file(folder_.path(manifest_.file(f).name)));
        for (std::uint32_t damaged = 1; damaged <= std::min(rows + 1, manifest_.file_count()); ++damaged) {
          for (std::uint32_t d = 0; d < damaged; ++d) {
            const std::uint32_t f = (first + d) % manifest_.file_count();
            write_file(folder_.path(manifest_.file(f).name), random_bytes(good[f].size() - d % 2, 99));
          }
          CheckpointStripes stripes(folder_.path(), manifest_, *io, memory.memory());
          for (std::uint64_t s = 0; s < stripes.count(); ++s) {
            const std::size_t bad = stripes.read(s).size();
            EXPECT_EQ(stripes.rebuild(), bad <= rows);
            for (std::uint32_t f = 0; f < manifest_.file_count() && bad <= rows; ++f) {
              const std::span<const std::byte> piece = stripes.piece(f);
              EXPECT_TRUE(std::equal(
                  piece.begin(), piece.end(),
                  good[f].begin() + static_cast<std::ptrdiff_t>(s * manifest_.parity->stripe_bytes)));
            }
          }
        }
        for (std::uint32_t f = 0; f < manifest_.file_count(); ++f)
          write_file(folder_.path(manifest_.file(f).name), good[f]);
      }
    }
}

TEST_F(ParityFiles, a_manifest_keeps_its_parity_and_one_that_contradicts_itself_is_refused) {
  write_shards({5000, 2 * mebibyte + 1});
  manifest_.training = "{}";
  manifest_.parity = write(2, Bytes{16} << 20);
  const Manifest read = parse_manifest(to_text(manifest_), "m");
  EXPECT_EQ(read.parity->crc32c, manifest_.parity->crc32c);
  EXPECT_EQ(read.parity->stripe_bytes, manifest_.parity->stripe_bytes);
  EXPECT_EQ(read.file(3).name, manifest_.parity->files[1].name);
  const std::function<void(ManifestParity&)> changes[] = {
      [](ManifestParity& parity) { parity.stripe_bytes = 0; },
      [](ManifestParity& parity) { parity.stripe_bytes = 4097; },
      [](ManifestParity& parity) { parity.stripe_bytes = Bytes{1} << 40; },
      [](ManifestParity& parity) { parity.files.clear(); },
      [](ManifestParity& parity) { parity.files[0].bytes -= 1; },
      [](ManifestParity& parity) { parity.files[1].name = "../parity"; },
      [](ManifestParity& parity) { parity.files.resize(300, parity.files[0]); },
      [](ManifestParity& parity) { parity.crc32c.pop_back(); },
      [](ManifestParity& parity) { parity.crc32c[1].pop_back(); }};
  for (const auto& change : changes) {
    Manifest changed = manifest_;
    change(*changed.parity);
    EXPECT_THROW(parse_manifest(to_text(changed), "m"), CorruptData) << &change - changes;
  }
}

TEST_F(ParityFiles, a_file_that_reads_back_otherwise_than_it_was_written_fails_on_its_rank) {
  write_shards({70000, 5000, 300000});
  manifest_.files[1].header_crc32c ^= 1;
  const std::string folder = folder_.path();
  std::vector<std::string> failures(3);
  run_ranks(3, [&](int rank, const std::shared_ptr<ThreadHub>& hub) {
    const auto device = make_cpu_device({.memory_bytes = 1 << 20, .compute_threads = 1});
    const auto communicator = make_thread_communicator(hub, *device, rank);
    const auto io = make_thread_engine({});
    MemoryBudget budget("host", 1 << 20);
    const HostBuffer memory(budget, MemoryTag::staging, 1 << 20);
    try {
      write_parity({.folder = folder,
                    .manifest = manifest_,
                    .rows = 1,
                    .io = *io,
                    .communicator = *communicator,
                    .device = *device,
                    .memory = memory.memory()});
    } catch (const CorruptData& error) {
      failures[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  EXPECT_EQ(failures[0] + failures[2], "");
  EXPECT_NE(failures[1].find("shard-1"), std::string::npos) << failures[1];
}

}  // namespace
}  // namespace headrace::testing
