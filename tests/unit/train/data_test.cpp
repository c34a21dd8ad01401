#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "headrace/data.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Data : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "headrace-data-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string write(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::binary) << text;
    return (root_ / name).string();
  }
  static std::string refusal(const std::string& path) {
    try {
      ByteCorpus::open(path);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  }
  static std::string bytes(const ByteCorpus& corpus, std::uint64_t offset, std::size_t count) {
    std::vector<std::uint8_t> out(count);
    corpus.read(offset, out);
    return {out.begin(), out.end()};
  }
  fs::path root_;
};

TEST_F(Data, a_folder_is_its_files_end_to_end_in_sorted_order) {
  write("b.txt", "world");
  write("a/z.txt", "hello ");
  write("empty", "");
  write("c", "!");
  const ByteCorpus corpus = ByteCorpus::open(root_.string());
  EXPECT_EQ(corpus.file_count(), 3u);
  EXPECT_EQ(bytes(corpus, 0, 12), "hello world!");
  for (std::uint64_t offset = 0; offset < 12; ++offset)
    for (std::size_t count = 0; offset + count <= 12; ++count)
      EXPECT_EQ(bytes(corpus, offset, count), std::string("hello world!").substr(offset, count));
}

TEST_F(Data, bytes_above_127_are_tokens_above_127) {
  const std::string path = write("t", std::string("\x00\x7f\x80\xff", 4));
  const ByteCorpus corpus = ByteCorpus::open(path);
  const SampleWindows windows(corpus, 3, 0);
  EXPECT_THAT(read_samples(corpus, windows, 3, 0, 1), testing::ElementsAre(0, 127, 128, 255));
}

TEST_F(Data, missing_and_empty_files_are_refused_by_name) {
  EXPECT_THAT(refusal((root_ / "nothing").string()), HasSubstr("nothing cannot be used: No such file"));
  EXPECT_THAT(refusal(write("void", "")), HasSubstr("the file is empty"));
  fs::create_directory(root_ / "folder");
  EXPECT_THAT(refusal((root_ / "folder").string()), HasSubstr("no file below it"));
  EXPECT_THAT(refusal("/dev/null"), HasSubstr("neither a file nor a folder"));
}

TEST_F(Data, a_text_shorter_than_one_sample_is_refused_with_the_numbers) {
  const ByteCorpus corpus = ByteCorpus::open(write("t", "12345678"));
  EXPECT_NO_THROW(SampleWindows(corpus, 7, 0));
  try {
    const SampleWindows windows(corpus, 8, 0);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds 8 bytes"));
    EXPECT_THAT(error.what(), HasSubstr("needs 9"));
  }
}

TEST_F(Data, a_file_that_became_shorter_is_an_error_and_not_old_bytes) {
  const std::string path = write("t", std::string(100, 'x'));
  const ByteCorpus corpus = ByteCorpus::open(path);
  fs::resize_file(path, 50);
  std::vector<std::uint8_t> out(60);
  EXPECT_THROW(corpus.read(0, out), Error);
}

// The global batch of step s is samples [s*B, (s+1)*B), however many ranks share it.
TEST_F(Data, a_global_batch_is_the_same_for_every_world_size) {
  std::string text(5000, ' ');
  std::mt19937 random(7);
  for (char& c : text) c = static_cast<char>(random());
  const ByteCorpus corpus = ByteCorpus::open(write("t", text));
  const SampleWindows windows(corpus, 16, 42);
  const auto whole = read_samples(corpus, windows, 16, 120, 12);
  for (const std::uint64_t world : {2u, 3u, 4u}) {
    std::vector<std::int32_t> joined;
    for (std::uint64_t rank = 0; rank < world; ++rank) {
      const auto part = read_samples(corpus, windows, 16, 120 + rank * (12 / world), 12 / world);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, whole);
  }
}

TEST_F(Data, a_fingerprint_tells_every_changed_byte_of_a_small_text_and_no_name) {
  std::string text(300'001, 'a');
  const std::string original = ByteCorpus::open(write("one", text)).fingerprint();
  EXPECT_EQ(ByteCorpus::open(write("other/name", text)).fingerprint(), original);
  for (const std::size_t at : {0, 1, 4095, 4096, 150'000, 300'000}) {
    std::string changed = text;
    changed[at] = 'b';
    EXPECT_NE(ByteCorpus::open(write("changed", changed)).fingerprint(), original) << at;
  }
  EXPECT_NE(ByteCorpus::open(write("longer", text + 'a')).fingerprint(), original);
}

TEST_F(Data, windows_reach_every_position_and_stay_inside) {
  const ByteCorpus corpus = ByteCorpus::open(write("t", std::string(20, 'x')));
  const SampleWindows windows(corpus, 9, 1);
  std::vector<int> seen(11);
  for (std::uint64_t i = 0; i < 1000; ++i) ++seen.at(windows.start(i));
  for (const int count : seen) EXPECT_GT(count, 40);
  EXPECT_EQ(windows.even_start(0, 5), 0u);
  EXPECT_EQ(windows.even_start(4, 5), 10u);
  EXPECT_EQ(windows.even_start(0, 1), 0u);
}

TEST_F(Data, another_seed_gives_other_windows) {
  const ByteCorpus corpus = ByteCorpus::open(write("t", std::string(100000, 'x')));
  int equal = 0;
  for (std::uint64_t i = 0; i < 100; ++i)
    equal += SampleWindows(corpus, 9, 1).start(i) == SampleWindows(corpus, 9, 2).start(i);
  EXPECT_LT(equal, 3);
}

TEST_F(Data, entropy_of_known_frequencies) {
  EXPECT_NEAR(unigram_entropy_nats(ByteCorpus::open(write("one", std::string(1000, 'a')))), 0, 1e-12);
  std::string all;
  for (int i = 0; i < 256 * 4; ++i) all.push_back(static_cast<char>(i));
  EXPECT_NEAR(unigram_entropy_nats(ByteCorpus::open(write("all", all))), std::log(256.0), 1e-12);
  EXPECT_NEAR(unigram_entropy_nats(
                  ByteCorpus::open(write("pieces", std::string(700000, 'a') + std::string(700000, 'b')))),
              std::log(2.0), 1e-12);
}

}  // namespace
}  // namespace headrace
