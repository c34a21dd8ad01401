// The journal's bytes: what is written is parsed, torn tails are recognised, damage elsewhere is refused.
#include "swap/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/errors.h"
#include "swap/stripe_map.h"

namespace headrace::swap {
namespace {

constexpr JournalIdentity identity{0x1234'5678'9abc'def0, 2, 3};
constexpr std::uint64_t header_bytes = 1536;

CommitRecord commit_of(std::uint64_t sequence, std::string metadata) {
  return {sequence,
          {100 + sequence, std::move(metadata)},
          {{8192 * (sequence % 2), sequence, static_cast<std::uint32_t>(7 * sequence), 3}, {4096, 1, 3, 1}}};
}

class JournalBytes {
 public:
  JournalBytes() : bytes_(encode_journal_header(identity, {})) {}
  JournalBytes& commit(std::uint64_t sequence, const std::string& metadata = "odd length.") {
    starts_.push_back(bytes_.size());
    return append(encode_commit(commit_of(sequence, metadata)));
  }
  JournalBytes& release(std::uint64_t sequence) { return append(encode_release(commit_of(sequence, ""))); }
  JournalContents decode() const { return decode_journal(bytes_, "/x/journal.bin", identity); }
  std::vector<std::byte>& bytes() { return bytes_; }
  std::uint64_t start(std::size_t record) const { return starts_[record]; }

 private:
  JournalBytes& append(const std::vector<std::byte>& record) {
    bytes_.insert(bytes_.end(), record.begin(), record.end());
    return *this;
  }
  std::vector<std::byte> bytes_;
  std::vector<std::uint64_t> starts_;
};

TEST(SwapFormat, crc32c_is_castagnoli) {
  const std::string digits = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(digits))), 0xe3069283u);
}

TEST(SwapFormat, an_empty_journal_has_no_commits) {
  JournalBytes journal;
  EXPECT_EQ(journal.bytes().size(), header_bytes);
  EXPECT_FALSE(journal.decode().history.newest);
  EXPECT_EQ(journal.decode().append_offset, header_bytes);
  EXPECT_EQ(journal.decode().state, (PathsState{1, 0}));
}

TEST(SwapFormat, the_last_two_commits_are_found_with_every_field) {
  const JournalContents contents = JournalBytes().commit(1).commit(2, "").commit(3, "abc").decode();
  ASSERT_TRUE(contents.history.newest && contents.history.superseded);
  EXPECT_EQ(contents.history.newest->commit.step, 103u);
  EXPECT_EQ(contents.history.newest->commit.metadata, "abc");
  EXPECT_EQ(contents.history.newest->table, commit_of(3, "").table);
  EXPECT_EQ(contents.history.superseded->commit.step, 102u);
  EXPECT_EQ(contents.history.superseded->commit.metadata, "");
  EXPECT_EQ(contents.torn_bytes, 0u);
}

TEST(SwapFormat, a_release_gives_up_the_older_commit_and_the_next_commit_goes_over_it) {
  JournalBytes journal;
  journal.commit(1).commit(2);
  const std::uint64_t end = journal.bytes().size();
  const JournalContents contents = journal.release(2).decode();
  EXPECT_FALSE(contents.history.superseded);
  EXPECT_EQ(contents.history.newest->commit.step, 102u);
  EXPECT_EQ(contents.append_offset, end);
}

TEST(SwapFormat, a_tail_torn_at_any_byte_leaves_the_commits_before_it) {
  JournalBytes whole;
  whole.commit(1).commit(2).commit(3);
  for (std::uint64_t bytes = whole.start(2); bytes < whole.bytes().size(); ++bytes) {
    JournalBytes torn = whole;
    torn.bytes().resize(bytes);
    const JournalContents contents = torn.decode();
    ASSERT_EQ(contents.history.newest->commit.step, 102u) << bytes;
    ASSERT_EQ(contents.torn_bytes, bytes - whole.start(2));
    ASSERT_EQ(contents.append_offset, whole.start(2));
    // Whatever was being appended, extents of the older commit may have been reused before it.
    ASSERT_EQ(contents.history.superseded.has_value(), bytes == whole.start(2));
    torn.bytes().resize(whole.bytes().size());  // grown, but never filled in
    if (torn.bytes() == whole.bytes()) break;   // only padding was missing
    ASSERT_EQ(torn.decode().history.newest->commit.step, 102u) << bytes;
  }
}

TEST(SwapFormat, a_flipped_bit_anywhere_in_the_last_record_is_noticed) {
  JournalBytes whole;
  whole.commit(1).commit(2);
  for (std::uint64_t at = whole.start(1); at < whole.bytes().size(); ++at) {
    JournalBytes flipped = whole;
    flipped.bytes()[at] ^= std::byte{1};
    ASSERT_EQ(flipped.decode().history.newest->commit.step, 101u) << at;
  }
}

TEST(SwapFormat, a_flipped_bit_before_the_last_record_is_refused_with_the_place) {
  JournalBytes whole;
  whole.commit(1).commit(2).commit(3);
  for (std::uint64_t at = whole.start(0); at < whole.start(2); ++at) {
    JournalBytes flipped = whole;
    flipped.bytes()[at] ^= std::byte{1};
    const std::uint64_t record = at < whole.start(1) ? whole.start(0) : whole.start(1);
    try {
      (void)flipped.decode();
      FAIL() << "byte " << at;
    } catch (const CorruptData& error) {
      ASSERT_THAT(error.what(), ::testing::HasSubstr("offset " + std::to_string(record)));
      ASSERT_THAT(error.what(), ::testing::HasSubstr("/x/journal.bin"));
    }
  }
}

// A release is written after its commit was flushed: that commit was not torn.
TEST(SwapFormat, a_flipped_bit_in_a_released_commit_is_damage) {
  JournalBytes whole;
  const std::uint64_t end = whole.commit(1).commit(2).bytes().size();
  whole.release(2);
  for (std::uint64_t at = whole.start(1); at < end; ++at) {
    JournalBytes flipped = whole;
    flipped.bytes()[at] ^= std::byte{1};
    ASSERT_THROW((void)flipped.decode(), CorruptData) << at;
  }
}

TEST(SwapFormat, a_missing_record_is_refused) {
  EXPECT_THROW((void)JournalBytes().commit(1).commit(3).decode(), CorruptData);
}

TEST(SwapFormat, a_damaged_short_or_foreign_header_is_refused) {
  JournalBytes journal;
  for (std::size_t at = 0; at < 32; ++at) {
    JournalBytes flipped = journal;
    flipped.bytes()[at] ^= std::byte{0x80};
    ASSERT_THROW((void)flipped.decode(), CorruptData) << at;
  }
  for (std::size_t at = 0; at < header_bytes; ++at) {
    JournalBytes cut = journal;
    cut.bytes().resize(at);
    ASSERT_THROW((void)cut.decode(), CorruptData) << at;
  }
  for (const JournalIdentity& other :
       {JournalIdentity{identity.store_id + 1, 2, 3}, JournalIdentity{identity.store_id, 3, 3},
        JournalIdentity{identity.store_id, 2, 0}})
    EXPECT_THROW((void)decode_journal(journal.bytes(), "j", other), CorruptData);
}

void write_state(std::vector<std::byte>& journal, const PathsState& state) {
  const std::vector<std::byte> stored = encode_paths_state(state);
  std::copy(stored.begin(), stored.end(),
            journal.begin() + static_cast<std::ptrdiff_t>(paths_state_offset(state)));
}

TEST(SwapFormat, the_newest_state_of_the_paths_counts_and_a_torn_one_leaves_the_one_before) {
  JournalBytes journal;
  journal.commit(1);
  write_state(journal.bytes(), {2, 0b100});
  EXPECT_EQ(journal.decode().state, (PathsState{2, 0b100}));
  write_state(journal.bytes(), {3, 0b101});
  EXPECT_EQ(journal.decode().state, (PathsState{3, 0b101}));
  EXPECT_EQ(journal.decode().history.newest->commit.step, 101u);
  for (std::uint64_t at = 0; at < 24; ++at) {
    JournalBytes torn = journal;
    torn.bytes()[paths_state_offset({3, 0}) + at] ^= std::byte{1};
    ASSERT_EQ(torn.decode().state, (PathsState{2, 0b100})) << at;
    torn.bytes()[paths_state_offset({2, 0}) + at] ^= std::byte{1};
    ASSERT_THROW((void)torn.decode(), CorruptData) << at;
  }
}

}  // namespace
}  // namespace headrace::swap
