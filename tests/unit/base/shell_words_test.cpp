#include "headrace/shell_words.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>

namespace headrace {
namespace {

// What a shell makes of the words, each in brackets.
std::string read_by_shell(const std::string& words) {
  const std::string command = "printf '[%s]' " + words;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::string text;
  std::array<char, 256> buffer;
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe.get()))
    text.append(buffer.data(), got);
  return text;
}

TEST(ShellWords, a_shell_reads_every_path_as_it_is) {
  for (const std::string path : {"/nvme0/swap", "with space", "it's", "''", "$HOME", "a;b&c|d", "*", "~root",
                                 "back\\slash", "new\nline", "\"q\"", "`id`", "a#b", "(x)", "\xC3\xA4", ""})
    EXPECT_EQ(read_by_shell(shell_word(path)), "[" + path + "]") << shell_word(path);
  EXPECT_EQ(read_by_shell(shell_words({"/a b", "/c", "it's"})), "[/a b][/c][it's]");
}

TEST(ShellWords, plain_paths_are_not_quoted_and_none_looks_like_a_flag) {
  EXPECT_EQ(shell_word("/mnt/nvme-0/rank-00000"), "/mnt/nvme-0/rank-00000");
  EXPECT_EQ(shell_words({"--json", "/a"}), "./--json /a");
  EXPECT_EQ(shell_words({}), "");
}

}  // namespace
}  // namespace headrace
