#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>

#include "headrace/data.h"
#include "headrace/errors.h"
#include "support/temporary_folder.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class Id>
std::string bytes_of(const std::vector<Id>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Id)};
}

std::string header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::vector<std::int32_t> words(256);
  words[0] = magic, words[1] = version, words[2] = count;
  return bytes_of(words);
}

class TokenFile : public ::testing::Test {
 protected:
  std::string file(const std::string& contents) {
    const std::string path = folder_.path("t.bin");
    std::ofstream(path, std::ios::binary) << contents;
    return path;
  }
  static std::vector<std::int32_t> all(const Tokens& tokens) {
    std::vector<std::int32_t> ids(tokens.count());
    tokens.read(0, ids);
    return ids;
  }
  std::string refusal(const std::string& contents, int vocabulary = 1000, unsigned bits = 0) {
    try {
      Tokens::open(file(contents), vocabulary, bits);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  }
  testing::TemporaryFolder folder_;
};

const std::vector<std::uint16_t> short_ids{3, 999, 0, 513};
const std::vector<std::uint32_t> long_ids{3, 999, 0, 513};

TEST_F(TokenFile, ids_of_16_and_32_bits_are_read_with_and_without_a_header) {
  for (const std::string& contents :
       {bytes_of(short_ids), header(20240520, 1, 4) + bytes_of(short_ids),
        header(20240801, 7, 4) + bytes_of(long_ids), header(20240520, 1, 4) + bytes_of(long_ids)}) {
    const Tokens tokens = Tokens::open(file(contents), 1000);
    EXPECT_THAT(all(tokens), ElementsAre(3, 999, 0, 513));
    EXPECT_EQ(tokens.noun(), "token");
  }
  EXPECT_THAT(all(Tokens::open(file(bytes_of(long_ids)), 1000, 32)), ElementsAre(3, 999, 0, 513));
  EXPECT_THAT(all(Tokens::open(file(bytes_of(std::vector<std::uint32_t>{3, 70000})), 128256)),
              ElementsAre(3, 70000));
}

TEST_F(TokenFile, a_text_is_its_bytes) {
  const std::string path = folder_.path("t.txt");
  std::ofstream(path) << "ab";
  EXPECT_THAT(all(Tokens::open(path, 256)), ElementsAre('a', 'b'));
  EXPECT_THROW(Tokens::open(path, 255), UsageError);
}

TEST_F(TokenFile, a_size_that_is_no_whole_number_of_ids_is_refused) {
  EXPECT_THAT(refusal(bytes_of(short_ids) + "x"),
              AllOf(HasSubstr("9 bytes are no whole number of ids of 16 bits"), HasSubstr("t.bin")));
  EXPECT_THAT(refusal("123456", 1000, 32), HasSubstr("ids of 32 bits"));
  EXPECT_THAT(refusal("123456", 100'000), HasSubstr("ids of 32 bits"));
}

TEST_F(TokenFile, a_header_that_does_not_fit_what_follows_is_refused) {
  EXPECT_THAT(refusal(header(20240520, 1, 5) + bytes_of(short_ids)),
              HasSubstr("its header says 5 ids, and the 8 bytes"));
  EXPECT_THAT(refusal(header(20240520, 1, -1) + bytes_of(short_ids)), HasSubstr("4294967295 ids"));
  EXPECT_THAT(refusal(header(20240520, 1, 0)), HasSubstr("0 ids"));
  EXPECT_THAT(refusal(header(20240520, 2, 4) + bytes_of(short_ids)), HasSubstr("version 2"));
  EXPECT_THAT(refusal(header(20240520, 1, 4) + bytes_of(short_ids), 1000, 32),
              HasSubstr("16 bits, and --token-bits 32"));
}

TEST_F(TokenFile, an_id_outside_the_vocabulary_is_named_with_its_place) {
  EXPECT_THAT(refusal(bytes_of(short_ids), 999),
              HasSubstr("token 1 (byte 2) is 999, and the model's vocabulary has 999 ids"));
  EXPECT_THAT(refusal(header(20240801, 7, 4) + bytes_of(long_ids), 513),
              HasSubstr("token 1 (byte 1028) is 999"));
  EXPECT_THAT(refusal(bytes_of(std::vector<std::uint32_t>{1, 0x80000000u}), 1000, 32),
              HasSubstr("token 1 (byte 4) is 2147483648"));
  EXPECT_EQ(refusal(bytes_of(short_ids), 1000), "");
}

TEST_F(TokenFile, ids_of_32_bits_are_not_taken_for_twice_as_many_of_16) {
  std::vector<std::uint32_t> ids(100);
  std::iota(ids.begin(), ids.end(), 1u);
  EXPECT_THAT(refusal(bytes_of(ids)), HasSubstr("they seem to have 32. Say which with --token-bits"));
  EXPECT_EQ(refusal(bytes_of(ids), 1000, 32), "");
  EXPECT_EQ(refusal(bytes_of(ids), 1000, 16), "");  // who says so has it so
}

TEST_F(TokenFile, samples_and_entropy_are_those_of_the_ids) {
  const Tokens tokens = Tokens::open(file(header(20240520, 1, 4) + bytes_of(short_ids)), 1000);
  const SampleWindows windows(tokens, 3, 0);
  EXPECT_THAT(read_samples(tokens, windows, 3, 0, 1), ElementsAre(3, 999, 0, 513));
  EXPECT_NEAR(unigram_entropy_nats(tokens), std::log(4.0), 1e-12);
  try {
    const SampleWindows too_long(tokens, 4, 0);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds 4 tokens"));
  }
}

TEST_F(TokenFile, the_fingerprint_tells_how_wide_ids_are) {
  const std::string contents(400, '\1');
  EXPECT_NE(Tokens::open(file(contents), 1 << 16, 16).fingerprint(),
            Tokens::open(file(contents), 1 << 30, 32).fingerprint());
}

}  // namespace
}  // namespace headrace
