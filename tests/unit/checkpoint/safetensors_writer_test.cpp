#include "src/checkpoint/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "headrace/errors.h"
#include "support/temporary_folder.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const SafetensorsDType u8 = *find_safetensors_dtype("U8");

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(SafetensorsWriter, what_it_writes_in_pieces_is_read_back) {
  const testing::TemporaryFolder folder;
  SafetensorsWriter writer(
      folder.path(), "m.safetensors",
      {{"a \"quoted\" name", u8, {3}}, {"none", u8, {0, 7}}, {"scalar", safetensors_dtype(DType::bf16), {}}},
      {{"format", "pt"}});
  for (const std::string_view piece : {"a", "", "bcd", "e"}) writer.write(bytes(piece));
  writer.finish();
  const SafetensorsFile file = SafetensorsFile::open(folder.path("m.safetensors"));
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.tensors()[0].name, "a \"quoted\" name");
  EXPECT_EQ(file.tensors()[2].dtype.name, "BF16");
  char read[2];
  file.read(file.tensors()[2], 0, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(std::string(read, 2), "de");
}

TEST(SafetensorsWriter, data_begin_at_a_multiple_of_8) {
  for (int names = 0; names < 20; ++names)
    EXPECT_EQ(
        safetensors_header({{std::string(static_cast<std::size_t>(names + 1), 'n'), u8, {1}}}, {}).size() % 8,
        0u);
}

TEST(SafetensorsWriter, an_unfinished_file_is_not_there) {
  const testing::TemporaryFolder folder;
  {
    SafetensorsWriter writer(folder.path(), "m.safetensors", {{"a", u8, {3}}}, {});
    writer.write(bytes("ab"));
    EXPECT_THAT(folder.names(), ElementsAre("m.safetensors.partial"));
    EXPECT_THROW(writer.finish(), std::logic_error);
    EXPECT_THROW(writer.write(bytes("cd")), std::logic_error);
  }
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(SafetensorsWriter, a_disk_without_the_space_is_refused_before_the_first_byte) {
  const testing::TemporaryFolder folder;
  try {
    SafetensorsWriter(folder.path(), "m.safetensors", {{"a", u8, {std::uint64_t{1} << 60}}}, {});
    FAIL();
  } catch (const DoesNotFit& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("m.safetensors takes"), HasSubstr(folder.path()), HasSubstr("Free ")));
  }
  EXPECT_THAT(folder.names(), IsEmpty());
}

// A limit of the file's size stands for a full disk: the write fails in the middle.
TEST(SafetensorsWriter, a_failed_write_names_the_file_and_leaves_nothing) {
  const testing::TemporaryFolder folder;
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 4096, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string said;
  try {
    WholeFile file(folder.path(), "m.safetensors", 0);
    file.append(std::vector<std::byte>(8192));
  } catch (const IoError& error) {
    said = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(said, AllOf(HasSubstr("write of"), HasSubstr("m.safetensors")));
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(SafetensorsWriter, a_new_file_takes_the_place_of_the_old_one) {
  const testing::TemporaryFolder folder;
  write_whole_file(folder.path(), "f", "old");
  write_whole_file(folder.path(), "f", "new and longer");
  EXPECT_THAT(folder.names(), ElementsAre("f"));
}

}  // namespace
}  // namespace headrace
