#include "headrace/bytes.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "headrace/errors.h"

namespace headrace {
namespace {

using namespace literals;

TEST(ParseBytes, binary_units_are_powers_of_1024) {
  EXPECT_EQ(parse_bytes("64MiB", "x"), 64_MiB);
  EXPECT_EQ(parse_bytes("3KiB", "x"), 3072u);
  EXPECT_EQ(parse_bytes("2GiB", "x"), 2_GiB);
  EXPECT_EQ(parse_bytes("1TiB", "x"), 1024_GiB);
}

TEST(ParseBytes, decimal_units_are_powers_of_1000) {
  EXPECT_EQ(parse_bytes("10kB", "x"), 10'000u);
  EXPECT_EQ(parse_bytes("5MB", "x"), 5'000'000u);
  EXPECT_EQ(parse_bytes("2GB", "x"), 2'000'000'000u);
}

TEST(ParseBytes, a_bare_number_is_bytes) {
  EXPECT_EQ(parse_bytes("4096", "x"), 4096u);
  EXPECT_EQ(parse_bytes("4096B", "x"), 4096u);
  EXPECT_EQ(parse_bytes("0", "x"), 0u);
}

TEST(ParseBytes, fractions_and_spaces_are_read) {
  EXPECT_EQ(parse_bytes("1.5GiB", "x"), 1536_MiB);
  EXPECT_EQ(parse_bytes(" 10 kB ", "x"), 10'000u);
  EXPECT_EQ(parse_bytes("0.5KiB", "x"), 512u);
}

std::string refusal(std::string_view text) {
  try {
    parse_bytes(text, "--x");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(ParseBytes, a_fraction_needs_a_unit_and_is_rounded_to_the_nearest_byte) {
  EXPECT_EQ(parse_bytes("0.3KiB", "x"), 307u);
  EXPECT_EQ(parse_bytes("1.3GiB", "x"), 1'395'864'371u);
  EXPECT_EQ(parse_bytes("1e3", "x"), 1000u);
  EXPECT_EQ(parse_bytes("2.0", "x"), 2u);
  for (const char* text : {"1.5", "0.5B", "1e-3", "2.25 B"})
    EXPECT_NE(refusal(text).find("fraction of a byte"), std::string::npos) << text << refusal(text);
  EXPECT_NE(refusal("0.0001KiB").find("less than one byte"), std::string::npos);
}

TEST(ParseBytes, whole_numbers_are_exact_and_the_largest_is_named) {
  EXPECT_EQ(parse_bytes("9007199254740993", "x"), 9007199254740993u);
  EXPECT_EQ(parse_bytes("9223372036854775807", "x"), 9223372036854775807u);
  for (const char* text :
       {"9223372036854775808", "99999999999999999999999", "8192PiB", "1e19", "9999999PiB", "9999999.5PiB"})
    EXPECT_NE(refusal(text).find("9223372036854775807"), std::string::npos) << text << refusal(text);
}

TEST(ParseBytes, a_message_shows_no_more_of_the_value_than_a_line) {
  EXPECT_LT(refusal(std::string(100'000, 'x')).size(), 300u);
}

TEST(ParseBytes, anything_else_is_refused) {
  for (const char* text : {"", " ", "MiB", "-1", "-1MiB", "1.2.3", "12 apples", "0x10", "nan", "inf",
                           "infGiB", "1e400", "99999999TiB", "5 MiB extra", "1,5GiB", "--"})
    EXPECT_THROW(parse_bytes(text, "x"), UsageError) << '"' << text << '"';
}

TEST(ParseBytes, error_names_option_value_and_a_right_form) {
  try {
    parse_bytes("12 apples", "--host-memory");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("--host-memory"), std::string::npos);
    EXPECT_NE(message.find("12 apples"), std::string::npos);
    EXPECT_NE(message.find("64MiB"), std::string::npos);
  }
}

TEST(FormatBytes, shows_three_significant_digits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(12_MiB), "12.0 MiB");
  EXPECT_EQ(format_bytes(128_MiB), "128 MiB");
  EXPECT_EQ(format_bytes(1536_MiB), "1.50 GiB");
}

TEST(FormatBytes, rounding_up_reaches_the_next_unit) {
  EXPECT_EQ(format_bytes(1024 * 1024 - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes(1000_KiB), "0.98 MiB");
  EXPECT_EQ(format_bytes(999_KiB), "999 KiB");
}

TEST(FormatBytes, largest_value_has_a_unit) {
  EXPECT_EQ(format_bytes(std::numeric_limits<Bytes>::max()), "16384 PiB");
}

TEST(FormatBytes, what_is_shown_can_be_read_back) {
  for (const Bytes bytes : {1_KiB, 12_MiB, 128_MiB, 1536_MiB, 3_GiB})
    EXPECT_EQ(parse_bytes(format_bytes(bytes), "x"), bytes);
}

TEST(RoundUp, reaches_the_next_multiple_of_any_integer) {
  EXPECT_EQ(round_up(0, 4096), 0u);
  EXPECT_EQ(round_up(1, 4096), 4096u);
  EXPECT_EQ(round_up(4096, 4096), 4096u);
  EXPECT_EQ(round_up(4097, 4096), 8192u);
  EXPECT_EQ(round_up(10, 3), 12u);
  EXPECT_EQ(divide_up(0, 7), 0u);
  EXPECT_EQ(divide_up(7, 7), 1u);
  EXPECT_EQ(divide_up(8, 7), 2u);
}

}  // namespace
}  // namespace headrace
