// Manifests of pinned checkpoints: what is written is read again, and what is no such thing is refused.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "headrace/errors.h"
#include "headrace/io_engine.h"
#include "src/checkpoint/manifest.h"

namespace headrace::testing {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Manifest pinned_manifest() {
  Manifest manifest;
  manifest.written_by = "test";
  manifest.step = 12;
  manifest.sequence = 5;
  manifest.world_size = 2;
  manifest.stage = 3;
  manifest.dtype = "bf16";
  manifest.training = "{}";
  manifest.parameters = {{"a.weight", {4, 8}}, {"a.bias", {8}}};
  manifest.pin = "step-00000012.1234abcd.5a0c11fe";
  manifest.stores = {{0xfedcba9876543210u, {"/nvme0/swap/rank-00000", "/nvme1/swap/rank-00000"}},
                     {7, {"/nvme0/swap/rank-00001", "/nvme1/swap/rank-00001"}}};
  return manifest;
}

// With its checksum made good again.
std::string text_of(const ordered_json& json) {
  std::string text = json.dump() + '\n';
  constexpr std::size_t at = std::string_view(R"({"crc32c":")").size(), digits = 8;
  text.replace(at, digits, std::string(digits, '0'));
  const std::string sum = fmt::format("{:08x}", crc32c(std::as_bytes(std::span(text))));
  return text.replace(at, digits, sum);
}

std::string refusal_of(const std::string& text) {
  try {
    parse_manifest(text, "manifest.json");
  } catch (const CorruptData& error) {
    return error.what();
  }
  return "nothing";
}

TEST(PinnedManifest, comes_back_as_it_was_written) {
  const Manifest read = parse_manifest(to_text(pinned_manifest()), "manifest.json");
  EXPECT_TRUE(read.is_pinned());
  EXPECT_EQ(read.pin, pinned_manifest().pin);
  ASSERT_EQ(read.stores.size(), 2u);
  EXPECT_EQ(read.stores[0].id, 0xfedcba9876543210u);
  EXPECT_EQ(read.stores[1].id, 7u);
  EXPECT_THAT(read.stores[1].directories, ElementsAre("/nvme0/swap/rank-00001", "/nvme1/swap/rank-00001"));
  EXPECT_EQ(read.step, 12u);
  EXPECT_EQ(read.parameters.size(), 2u);
  EXPECT_EQ(to_text(read), to_text(pinned_manifest()));
}

TEST(PinnedManifest, of_files_is_not_pinned_and_has_the_version_of_before) {
  Manifest manifest = pinned_manifest();
  manifest.pin.clear();
  manifest.stores.clear();
  EXPECT_FALSE(parse_manifest(to_text(manifest), "manifest.json").is_pinned());
  EXPECT_EQ(ordered_json::parse(to_text(manifest)).at("version"), 1);
  EXPECT_EQ(ordered_json::parse(to_text(pinned_manifest())).at("version"), 2);
}

TEST(PinnedManifest, that_does_not_hold_together_is_refused) {
  const ordered_json good = ordered_json::parse(to_text(pinned_manifest()));
  ASSERT_EQ(refusal_of(text_of(good)), "nothing");
  const auto refusal = [&](const auto& change) {
    ordered_json json = good;
    change(json);
    return refusal_of(text_of(json));
  };
  using J = ordered_json;
  const std::string each = "does not name the swap store of each rank";
  EXPECT_THAT(refusal([](J& json) { json["world_size"] = 3; }), HasSubstr(each));
  EXPECT_THAT(refusal([](J& json) { json["world_size"] = 0, json["stores"] = J::array(); }), HasSubstr(each));
  EXPECT_THAT(refusal([](J& json) { json["stores"] = "none"; }), HasSubstr("damaged"));
  EXPECT_THAT(refusal([](J& json) { json["stores"][0]["id"] = "xyz"; }), HasSubstr("no id of a swap store"));
  EXPECT_THAT(refusal([](J& json) { json["stores"][0]["id"] = "11111111111111111"; }),
              HasSubstr("no id of a swap store"));
  EXPECT_THAT(refusal([](J& json) { json["stores"][0]["id"] = 7; }), HasSubstr("damaged"));
  EXPECT_THAT(refusal([](J& json) { json["stores"][1]["directories"] = J::array(); }),
              HasSubstr("has no folder"));
  EXPECT_THAT(refusal([](J& json) { json["stores"][1]["directories"][0] = "../x"; }),
              HasSubstr("no path of a folder"));
  EXPECT_THAT(refusal([](J& json) { json["pin"] = ""; }), HasSubstr("its version"));
  EXPECT_THAT(refusal([](J& json) { json.erase("pin"); }), HasSubstr("damaged"));
  EXPECT_THAT(refusal([](J& json) { json.erase("stores"); }), HasSubstr("damaged"));
  EXPECT_THAT(refusal([](J& json) { json["version"] = 3; }), HasSubstr("has version 3"));
  EXPECT_THAT(
      refusal([](J& json) {
        json["files"].push_back({{"name", "x"}, {"bytes", 8}, {"header_bytes", 8}, {"header_crc32c", 0}});
      }),
      HasSubstr("names files, and swap stores too"));
}

TEST(PinnedManifest, of_which_a_byte_is_changed_is_refused) {
  const std::string good = to_text(pinned_manifest());
  for (std::size_t at = 0; at + 1 < good.size(); ++at) {
    std::string changed = good;
    changed[at] ^= 1;
    ASSERT_NE(refusal_of(changed), "nothing") << at;
  }
}

}  // namespace
}  // namespace headrace::testing
