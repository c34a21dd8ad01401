#include "src/train/config_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "headrace/errors.h"

namespace headrace {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string refusal(std::string_view text) {
  try {
    parse_config_text(text, "run.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(ConfigText, is_read_as_the_json_it_is) {
  const std::string text = R"({"a": [1, -2, 0.5, {"b": null}], "c": {"d": "x\"y\\", "e": true}, "f": []})";
  EXPECT_EQ(parse_config_text(text, "run.json"), Json::parse(text));
  EXPECT_EQ(parse_config_text("\xef\xbb\xbf{}", "run.json"), Json::object());
}

struct Fault {
  const char* text;
  const char* place;
  const char* what;
};
class ConfigTextFault : public testing::TestWithParam<Fault> {};
TEST_P(ConfigTextFault, is_told_with_line_column_and_what_should_stand_there) {
  const std::string message = refusal(GetParam().text);
  EXPECT_THAT(message, HasSubstr(std::string("run.json, ") + GetParam().place + ":"));
  EXPECT_THAT(message, HasSubstr(GetParam().what));
  EXPECT_THAT(message, Not(HasSubstr("exception")));
}
INSTANTIATE_TEST_SUITE_P(
    ConfigText, ConfigTextFault,
    testing::Values(Fault{"", "line 1, column 1", "it is empty"},
                    Fault{" \n", "line 2, column 1", "it is empty"},
                    Fault{"{", "line 1, column 2", "before the closing }"},
                    Fault{"{\"a\": [1,2", "line 1, column 11", "before the closing ]"},
                    Fault{"{\"a\": 1,}", "line 1, column 9", "comma before the closing } is one too many"},
                    Fault{"{\"a\" 1}", "line 1, column 6", "a colon is expected"},
                    Fault{"{\"a\": 1 \"b\": 2}", "line 1, column 9", "a comma or the closing } is expected"},
                    Fault{"{\"a\": [1 2]}", "line 1, column 10", "a comma or the closing ] is expected"},
                    Fault{"{\"a\":}", "line 1, column 6", "a value is expected"},
                    Fault{"{:}", "line 1, column 2", "a name in double quotes is expected"},
                    Fault{"{a: 1}", "line 1, column 2", "\"a\""},
                    Fault{"{'a': 1}", "line 1, column 2", "double quotes"},
                    Fault{"{\xe2\x80\x9c", "line 1, column 2", "double quotes"},
                    Fault{"{\"b\":\n  True}", "line 2, column 3", "True is written in small letters"},
                    Fault{"{\"b\": 1 // x\n}", "line 1, column 9", "no comments"},
                    Fault{"{\"a\": \"x\n\"}", "line 1, column 9", "closing quote is missing"},
                    Fault{"{\"a\": \"x", "line 1, column 9", "closing quote is missing"},
                    Fault{"{\"a\": \"C:\\d\"}", "line 1, column 11", "backslash"},
                    Fault{"{\"\xc3\xa9\": \"\xff\"}", "line 1, column 8", "not UTF-8"},
                    Fault{"{\"a\": 01}", "line 1, column 7", "a number is written like"},
                    Fault{"{\"a\": 1.}", "line 1, column 7", "a number is written like"},
                    Fault{"{\"a\": 1e999}", "line 1, column 7", "1e999 is too large"},
                    Fault{"{} {}", "line 1, column 4", "nothing may follow"},
                    Fault{"}", "line 1, column 1", "one JSON object"}));

TEST(ConfigText, a_key_that_is_given_twice_is_named_with_its_section) {
  EXPECT_THAT(refusal(R"({"a": {"b": 1, "c": 2, "b": 1}})"), HasSubstr("\"a.b\" is given twice"));
  EXPECT_THAT(refusal(R"({"a": {"b": 1}, "a": {"c": 2}})"), HasSubstr("\"a\" is given twice"));
  EXPECT_EQ(refusal(R"({"a": {"b": 1}, "b": {"a": 1}})"), "");
}

TEST(ConfigText, nesting_without_end_is_refused) {
  EXPECT_THAT(refusal(std::string(100'000, '[')), HasSubstr("nested"));
}

TEST(ConfigText, comes_from_regular_files_alone) {
  std::string base = (std::filesystem::temp_directory_path() / "headrace-config-XXXXXX").string();
  ASSERT_NE(::mkdtemp(base.data()), nullptr);
  const std::string pipe = base + "/pipe", file = base + "/file";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::ofstream(file) << "{}";
  EXPECT_EQ(read_config_text(file), "{}");
  for (const std::string& path : {pipe, base, base + "/none", std::string("/dev/zero"), file + "/x"})
    EXPECT_THROW(read_config_text(path), UsageError) << path;
  std::filesystem::remove_all(base);
}

}  // namespace
}  // namespace headrace
