#include "src/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "headrace/errors.h"
#include "support/safetensors_image.h"
#include "support/temporary_folder.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::safetensors_image;

class Safetensors : public ::testing::Test {
 protected:
  std::string file(const std::string& image) {
    testing::write_image(path_, image);
    return path_;
  }
  // What opening this image says.
  std::string refusal(const std::string& image) {
    try {
      SafetensorsFile::open(file(image));
    } catch (const CorruptData& error) {
      return error.what();
    }
    return "";
  }
  std::string refusal(std::string_view header, std::string_view data) {
    return refusal(safetensors_image(header, data));
  }
  testing::TemporaryFolder folder_;
  std::string path_ = folder_.path("x.safetensors");
};

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST_F(Safetensors, tensors_are_listed_in_order_of_their_data_and_read_in_ranges) {
  const SafetensorsFile opened = SafetensorsFile::open(file(safetensors_image(
      R"({"b":{"dtype":"U8","shape":[2,2],"data_offsets":[4,8]},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   )",
      "abcdEFGH")));
  ASSERT_EQ(opened.tensors().size(), 2u);
  EXPECT_EQ(opened.tensors()[0].name, "a");
  EXPECT_EQ(opened.tensors()[1].name, "b");
  EXPECT_EQ(opened.tensors()[1].dtype.name, "U8");
  EXPECT_THAT(opened.tensors()[1].shape, ElementsAre(2u, 2u));
  EXPECT_EQ(opened.tensors()[1].first, 4u);
  EXPECT_EQ(opened.metadata().at("format"), "pt");
  char two[2];
  opened.read(opened.tensors()[1], 1, std::as_writable_bytes(std::span(two)));
  EXPECT_EQ(std::string(two, 2), "FG");
  EXPECT_THROW(opened.read(opened.tensors()[1], 3, std::as_writable_bytes(std::span(two))), std::logic_error);
}

TEST_F(Safetensors, scalars_and_tensors_without_elements_are_normal) {
  const SafetensorsFile opened = SafetensorsFile::open(
      file(safetensors_image(R"({"s":{"dtype":"F16","shape":[],"data_offsets":[0,2]},)"
                             R"("e":{"dtype":"F32","shape":[3,0],"data_offsets":[2,2]},)"
                             R"("f":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
                             "xy")));
  ASSERT_EQ(opened.tensors().size(), 3u);
  for (const StoredTensor& tensor : opened.tensors()) {
    EXPECT_EQ(tensor.numel(), tensor.name == "s" ? 1u : 0u);
    opened.read(tensor, tensor.bytes, {});
  }
  EXPECT_TRUE(SafetensorsFile::open(file(safetensors_image("{}", ""))).tensors().empty());
}

TEST_F(Safetensors, a_refusal_names_the_file_and_what_to_do) {
  EXPECT_THAT(refusal(tensor("F32", "[2]", "[0,4]"), "abcd"),
              AllOf(HasSubstr(path_), HasSubstr("tensor \"w\""), HasSubstr("Fetch or write it again")));
}

TEST_F(Safetensors, lengths_that_the_file_does_not_have_are_refused) {
  EXPECT_THAT(refusal(""), HasSubstr("it has 0 bytes"));
  EXPECT_THAT(refusal("1234567"), HasSubstr("it has 7 bytes"));
  EXPECT_THAT(refusal(testing::length_prefix(3) + "{}"), HasSubstr("the file has 10 in all"));
  EXPECT_THAT(refusal(testing::length_prefix(100'000'001) + "{}"), HasSubstr("the format allows 100000000"));
  EXPECT_THAT(refusal(testing::length_prefix(~0ull) + "{}"), HasSubstr("18446744073709551615 bytes"));
  EXPECT_THAT(refusal(testing::length_prefix(0)), HasSubstr("does not begin with"));
}

TEST_F(Safetensors, headers_that_are_not_the_formats_json_are_refused) {
  EXPECT_THAT(refusal(" {}", ""), HasSubstr("does not begin with"));
  EXPECT_THAT(refusal("[]", ""), HasSubstr("does not begin with"));
  EXPECT_THAT(refusal("{", ""), HasSubstr("not JSON from byte"));
  EXPECT_THAT(refusal("{}x", ""), HasSubstr("not JSON from byte"));
  EXPECT_THAT(refusal(std::string("{}\0 hidden", 10), ""), HasSubstr("holds a zero byte"));
  EXPECT_THAT(refusal("{\"\xff\":{}}", ""), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(R"({"w":1})", ""), HasSubstr("the number 1 instead of an object"));
  EXPECT_THAT(refusal(R"({"w":[1]})", ""), HasSubstr("a list instead of an object"));
  EXPECT_THAT(refusal(R"({"w":null})", ""), HasSubstr("null instead of an object"));
}

TEST_F(Safetensors, nesting_is_refused_at_the_first_level_that_the_format_does_not_have) {
  const std::string deep(1'000'000, '[');
  EXPECT_THAT(refusal(tensor("F32", deep, "[0,4]"), "abcd"), HasSubstr("its shape is or holds a list"));
  EXPECT_THAT(refusal(tensor("F32", R"([{"a":1}])", "[0,4]"), "abcd"),
              HasSubstr("its shape is or holds an object"));
  EXPECT_THAT(refusal(R"({"w":{"dtype":{"a":1}}})", ""), HasSubstr("its dtype is or holds an object"));
}

TEST_F(Safetensors, keys_that_stand_twice_or_are_unknown_or_missing_are_refused) {
  const std::string w = R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(refusal("{" + w + "," + w + "}", "a"), HasSubstr("tensor \"w\": it stands twice"));
  EXPECT_THAT(refusal(R"({"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a"),
              HasSubstr("\"dtype\" stands twice"));
  EXPECT_THAT(refusal(R"({"__metadata__":{},"__metadata__":{}})", ""),
              HasSubstr("__metadata__: it stands twice"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":"1","a":"2"}})", ""), HasSubstr("\"a\" stands twice"));
  EXPECT_THAT(refusal(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"stride":[1]}})", "a"),
              HasSubstr("\"stride\" is not a key of the format"));
  EXPECT_THAT(refusal(R"({"w":{"shape":[1],"data_offsets":[0,1]}})", "a"), HasSubstr("it has no dtype"));
  EXPECT_THAT(refusal(R"({"w":{"dtype":"U8","data_offsets":[0,1]}})", "a"), HasSubstr("it has no shape"));
  EXPECT_THAT(refusal(R"({"w":{"dtype":"U8","shape":[1]}})", "a"), HasSubstr("it has no data_offsets"));
}

TEST_F(Safetensors, metadata_hold_text_alone) {
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":1}})", ""), HasSubstr("only text is allowed"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":{}}})", ""), HasSubstr("only text is allowed"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":null}})", ""), HasSubstr("only text is allowed"));
  EXPECT_THAT(refusal(R"({"__metadata__":[]})", ""), HasSubstr("a list instead of an object"));
}

TEST_F(Safetensors, dtypes_and_shapes_that_do_not_exist_are_refused) {
  EXPECT_THAT(refusal(tensor("F31", "[1]", "[0,4]"), "abcd"), HasSubstr("dtype \"F31\" is not known"));
  EXPECT_THAT(refusal(tensor("U8", "[-1]", "[0,1]"), "a"), HasSubstr("-1, a negative number"));
  EXPECT_THAT(refusal(tensor("U8", "[1.0]", "[0,1]"), "a"), HasSubstr("1.0, which is not a whole number"));
  EXPECT_THAT(refusal(tensor("U8", "[18446744073709551616]", "[0,1]"), "a"),
              HasSubstr("not a whole number of 64 bits"));
  EXPECT_THAT(refusal(tensor("U8", "[4294967296,4294967296]", "[0,0]"), ""),
              HasSubstr("more elements than 64 bits"));
  EXPECT_THAT(refusal(tensor("F64", "[2305843009213693952]", "[0,0]"), ""),
              HasSubstr("more bits than 64 bits"));
  EXPECT_THAT(refusal(tensor("F4", "[3]", "[0,1]"), "a"), HasSubstr("do not fill whole bytes"));
  std::string dimensions = "1";
  for (int i = 0; i < 64; ++i) dimensions += ",1";
  EXPECT_THAT(refusal(tensor("U8", "[" + dimensions + "]", "[0,1]"), "a"),
              HasSubstr("holds more than 64 numbers"));
}

TEST_F(Safetensors, ranges_outside_the_data_or_of_another_size_are_refused) {
  EXPECT_THAT(refusal(tensor("U8", "[1]", "[1,0]"), "a"), HasSubstr("before they begin"));
  EXPECT_THAT(refusal(tensor("U8", "[2]", "[0,2]"), "a"), HasSubstr("the file has 1 bytes of data"));
  EXPECT_THAT(refusal(tensor("U8", "[1]", "[18446744073709551615,18446744073709551615]"), "a"),
              HasSubstr("the file has 1 bytes of data"));
  EXPECT_THAT(refusal(tensor("F32", "[2]", "[0,4]"), "abcd"), HasSubstr("need 8 bytes, and its data are 4"));
  EXPECT_THAT(refusal(tensor("U8", "[1]", "[0]"), "a"), HasSubstr("not two numbers"));
  EXPECT_THAT(refusal(tensor("U8", "[1]", "[0,1,1]"), "a"), HasSubstr("more than 2 numbers"));
}

TEST_F(Safetensors, bytes_of_two_tensors_or_of_none_are_refused) {
  const auto two = [](const char* a, const char* b) {
    return std::string(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)") + a +
           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}";
  };
  EXPECT_EQ(refusal(two("[0,2]", "[2,4]"), "abcd"), "");
  EXPECT_THAT(refusal(two("[0,2]", "[1,3]"), "abc"), HasSubstr("within those of another tensor"));
  EXPECT_THAT(refusal(two("[0,2]", "[0,2]"), "ab"), HasSubstr("within those of another tensor"));
  EXPECT_THAT(refusal(two("[0,2]", "[3,5]"), "abcde"), HasSubstr("bytes 2 to 3 belong to no tensor"));
  EXPECT_THAT(refusal(two("[1,3]", "[3,5]"), "abcde"), HasSubstr("bytes 0 to 1 belong to no tensor"));
  EXPECT_THAT(refusal(two("[0,2]", "[2,4]"), "abcde"), HasSubstr("the last 1 bytes"));
}

TEST_F(Safetensors, what_is_no_regular_file_is_refused_without_waiting) {
  EXPECT_THROW(SafetensorsFile::open(folder_.path("none")), IoError);
  EXPECT_THROW(SafetensorsFile::open(folder_.path()), CorruptData);
  const std::string pipe = folder_.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(SafetensorsFile::open(pipe), CorruptData);
}

TEST_F(Safetensors, a_file_cut_short_while_it_is_open_is_named) {
  const SafetensorsFile opened =
      SafetensorsFile::open(file(safetensors_image(tensor("U8", "[4]", "[0,4]"), "abcd")));
  ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(opened.file_bytes() - 2)), 0);
  std::byte four[4];
  EXPECT_THROW(opened.read(opened.tensors()[0], 0, four), CorruptData);
}

}  // namespace
}  // namespace headrace
