// A test that runs on every instruction set, and skips with the reason where the CPU lacks it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "headrace/isa.h"

namespace headrace::test {

class IsaTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!supported(GetParam())) GTEST_SKIP() << "this CPU has no " << name_of(GetParam()) << " instructions";
  }
};

inline const auto every_isa = testing::Values(Isa::scalar, Isa::avx2, Isa::avx512);
inline std::string isa_test_name(const testing::TestParamInfo<Isa>& info) {
  return std::string(name_of(info.param));
}

}  // namespace headrace::test
