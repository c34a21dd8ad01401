// Mutations of a corpus, the same in every run: what fails is found again by its number.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "headrace/splitmix.h"
#include "support/safetensors_image.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace headrace {
namespace {

using testing::safetensors_image;

std::vector<std::string> corpus() {
  return {
      safetensors_image("{}", ""),
      safetensors_image(R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", std::string(24, 'x')),
      safetensors_image(
          R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},)"
          R"("b":{"dtype":"U8","shape":[],"data_offsets":[8,9]},)"
          R"("c":{"dtype":"I64","shape":[0,5],"data_offsets":[9,9]}}     )",
          std::string(9, 'y')),
      safetensors_image(R"({"b":{"dtype":"F16","shape":[3],"data_offsets":[2,8]},)"
                        R"("a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})",
                        std::string(8, 'z')),
      safetensors_image(R"({"w":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", ""),
      safetensors_image(R"({"w":{"dtype":"U8","shape":[[[[]]]],"data_offsets":[0,-1]}})", ""),
  };
}

// What stands in files that are made to break readers.
const std::vector<std::string> words = {"0",
                                        "1",
                                        "-1",
                                        "2",
                                        "24",
                                        "4294967296",
                                        "9223372036854775808",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "1e3",
                                        "null",
                                        "true",
                                        "{}",
                                        "[]",
                                        "\"\"",
                                        "\"F32\"",
                                        "\"dtype\":",
                                        "\"shape\":",
                                        "\"data_offsets\":",
                                        "[0,0]",
                                        ",",
                                        "\"w\":",
                                        "\"__metadata__\":{\"a\":\"b\"},",
                                        "\\u0000",
                                        "\xff"};

class Mutator {
 public:
  explicit Mutator(std::uint64_t number) : state_(splitmix64(number)) {}
  std::string run() {
    const std::vector<std::string> seeds = corpus();
    std::string image = seeds[below(seeds.size())];
    for (std::uint64_t changes = 1 + below(4); changes > 0; --changes) change(image, seeds);
    return below(4) == 0 ? image : with_true_length(image);
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return (state_ = splitmix64(state_)) % bound; }
  // Most changes are to be seen by what is behind the check of the length.
  static std::string with_true_length(const std::string& image) {
    const std::size_t end = image.rfind('}');
    if (end == std::string::npos || end < 8) return image;
    return testing::length_prefix(end + 1 - 8) + image.substr(8);
  }
  void change(std::string& image, const std::vector<std::string>& seeds) {
    const std::size_t at = below(image.size() + 1);
    const std::string& word = words[below(words.size())];
    switch (below(6)) {
      case 0:
        if (at < image.size()) image[at] = static_cast<char>(image[at] ^ (1 << below(8)));
        break;
      case 1:
        image.insert(at, word);
        break;
      case 2:
        image.replace(at, below(8), word);
        break;
      case 3:
        image.resize(at);
        break;
      case 4:
        image.insert(at, seeds[below(seeds.size())].substr(8));
        break;
      default:
        replace_number(image, word);
    }
  }
  void replace_number(std::string& image, const std::string& word) {
    const std::size_t first =
        image.find_first_of("0123456789", std::min(image.size(), 8 + below(image.size() + 1)));
    if (first == std::string::npos) return;
    const std::size_t end = std::min(image.size(), image.find_first_not_of("0123456789", first));
    image.replace(first, end - first, word);
  }

  std::uint64_t state_;
};

TEST(SafetensorsFuzz, every_mutation_is_refused_or_sound) {
  constexpr std::uint64_t mutations = 30'000;
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(20);  // of a sanitizer on a busy machine
  std::uint64_t accepted = 0, done = 0;
  for (; done < mutations && std::chrono::steady_clock::now() < end; ++done) {
    SCOPED_TRACE(done);
    const std::string image = Mutator(done).run();
    accepted +=
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(image.data()), image.size()) == 0;
  }
  EXPECT_GT(done, 1000u);
  // Were all refused, or none, the mutations would test nothing.
  EXPECT_GT(accepted, done / 200);
  EXPECT_LT(accepted, done / 2);
}

}  // namespace
}  // namespace headrace
