#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>

#include "cpu_adam/kernel_table.h"
#include "headrace/errors.h"

namespace headrace::test {
namespace {

TEST(Dispatch, chooses_the_widest_set_that_the_cpu_has) {
  const Isa chosen = choose_isa(nullptr);
  EXPECT_TRUE(supported(chosen));
  for (const Isa wider : {Isa::avx2, Isa::avx512}) {
    EXPECT_TRUE(wider <= chosen || !supported(wider));
  }
  EXPECT_EQ(choose_isa(""), chosen);
}

TEST(Dispatch, follows_the_override) {
  EXPECT_EQ(choose_isa("scalar"), Isa::scalar);
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    const std::string name(name_of(isa));
    if (supported(isa)) {
      EXPECT_EQ(choose_isa(name.c_str()), isa);
    } else {
      EXPECT_THROW(choose_isa(name.c_str()), UsageError);
    }
  }
}

TEST(Dispatch, refuses_an_unknown_set_by_name) {
  try {
    choose_isa("sse9");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("sse9"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("avx512"), std::string::npos);
  }
}

// A CPU without AVX must be able to run everything but the dispatched kernels: an inline function of some
// header, compiled with wide instructions and kept by the linker for all, would crash there. Names of
// dispatched functions hold their vector type.
TEST(Dispatch, wide_registers_are_used_by_the_dispatched_functions_alone) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "not an x86-64 build";
#endif
  const std::unique_ptr<FILE, int (*)(FILE*)> listing(
      popen("objdump -d -C --no-show-raw-insn /proc/$PPID/exe 2>/dev/null", "r"), pclose);
  ASSERT_NE(listing, nullptr);
  std::string function;
  std::size_t functions = 0, avx2 = 0, avx512 = 0;
  for (char line[4096]; std::fgets(line, sizeof line, listing.get()) != nullptr;) {
    const std::string text = line;
    if (text.ends_with(">:\n")) {
      function = text.substr(text.find('<'));
      ++functions;
    }
    const bool zmm = text.find("%zmm") != std::string::npos, ymm = text.find("%ymm") != std::string::npos;
    if (!zmm && !ymm) continue;
    const bool in_avx512 = function.find("Avx512") != std::string::npos;
    const bool in_avx2 = function.find("Avx2") != std::string::npos;
    ASSERT_TRUE(in_avx512 || (in_avx2 && !zmm)) << function << text;
    avx512 += zmm ? 1 : 0;
    avx2 += in_avx2 ? 1 : 0;
  }
  if (functions == 0) GTEST_SKIP() << "objdump (binutils) is not installed, or the symbols are stripped";
  EXPECT_GT(avx2, 100u);
  EXPECT_GT(avx512, 100u);
}

}  // namespace
}  // namespace headrace::test
