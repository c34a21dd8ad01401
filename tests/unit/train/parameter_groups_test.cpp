// The setting `parameter_groups`: what a file and a flag may say, whose parameters are whose, what is
// refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/unit/train/config_of.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string file_of(const std::string& groups, const std::string& others) {
  return fmt::format(R"({{"headrace": {{"batch_size": 1, {} "parameter_groups": {}}}}})", others, groups);
}
const Flags nano = {{"model", "gpt2-nano"}};
ResolvedOptions options_of(const std::string& groups, const std::string& others = "") {
  return resolve(file_of(groups, others), nano);
}
std::string refusal_of(const std::string& groups, const std::string& others = "") {
  return refusal(file_of(groups, others), nano);
}

std::map<std::string, std::uint32_t> groups_by_name(const ResolvedOptions& options) {
  std::vector<UnitSpec> units = make_model(options.model, options.model_options)->unit_specs();
  assign_groups(units, options);
  std::map<std::string, std::uint32_t> groups;
  for (const UnitSpec& unit : units)
    for (const ParameterSpec& parameter : unit.parameters) groups[parameter.name] = parameter.group;
  return groups;
}

TEST(ParameterGroupsSetting, the_first_match_wins_and_what_nothing_matches_is_in_the_default_group) {
  const auto groups = groups_by_name(options_of(R"([{"parameters": "h.0.attn.*"},
                     {"parameters": ["h.*.attn.*.bias", "w[pt]e.weight"], "weight_decay": 0}])"));
  EXPECT_EQ(groups.at("h.0.attn.c_attn.bias"), 1u);
  EXPECT_EQ(groups.at("h.1.attn.c_attn.bias"), 2u);
  EXPECT_EQ(groups.at("h.1.attn.c_attn.weight"), 0u);
  EXPECT_EQ(groups.at("wte.weight"), 2u);
  EXPECT_EQ(groups.at("wpe.weight"), 2u);
  EXPECT_EQ(groups.at("ln_f.bias"), 0u);
}

TEST(ParameterGroupsSetting, gives_the_engine_what_it_says_and_nothing_else) {
  const ResolvedOptions options = options_of(R"([
      {"parameters": ["wpe.*"], "learning_rate_factor": 0.5, "betas": [0.8, 0.9], "eps": 1e-6,
       "weight_decay": 0.3, "maximize": true},
      {"parameters": ["wte.*"], "weight_decay": 0}])");
  const ParameterGroup all{.learning_rate_factor = 0.5,
                           .beta1 = 0.8,
                           .beta2 = 0.9,
                           .epsilon = 1e-6,
                           .weight_decay = 0.3,
                           .maximize = true};
  EXPECT_THAT(options.engine.groups, ElementsAre(ParameterGroup{}, all, ParameterGroup{.weight_decay = 0.0}));
  EXPECT_EQ(options_of("[]").engine.groups.size(), 1u);
}

TEST(ParameterGroupsSetting, of_a_flag_is_the_same_text_and_the_effective_configuration_means_the_same) {
  const std::string groups =
      R"([{"parameters": ["wpe.*"], "learning_rate_factor": 0.5, "betas": [0.8, 0.9]}])";
  const ResolvedOptions of_file = options_of(groups);
  ConfigDraft flags;
  flags.set_flag("model", "gpt2-nano");
  flags.set_flag("batch_size", "1");
  flags.set_flag("parameter_groups", groups);
  ConfigDraft again;
  again.read_text(of_file.effective_config, "again.json");
  for (const ResolvedOptions& options : {flags.resolve({}), again.resolve({})}) {
    EXPECT_EQ(options.engine.groups, of_file.engine.groups);
    EXPECT_EQ(groups_by_name(options), groups_by_name(of_file));
    EXPECT_EQ(options.effective_config, of_file.effective_config);
  }
}

TEST(ParameterGroupsSetting, a_pattern_that_matches_nothing_is_named_with_the_nearest_names) {
  EXPECT_THAT(
      refusal_of(R"([{"parameters": ["wpe.*"]}, {"parameters": ["wte.*", "h.0.attn.c_atn.weight"]}])"),
      AllOf(HasSubstr("\"headrace.parameter_groups\""), HasSubstr("\"h.0.attn.c_atn.weight\" of group 2"),
            HasSubstr("nearest names are h.0.attn.c_attn.weight, ")));
  EXPECT_THAT(refusal_of(R"([{"parameters": ["w*"]}, {"parameters": ["wte.*"]}])"),
              HasSubstr("all that group 2 matches belongs to the groups before it"));
}

TEST(ParameterGroupsSetting, a_group_without_a_value_is_refused_unless_it_keeps_parameters_from_a_later_one) {
  const char* const refused = "would have no effect: it gives its parameters no value of their own";
  EXPECT_THAT(refusal_of(R"([{"parameters": ["wpe.*"]}])"), AllOf(HasSubstr("group 1"), HasSubstr(refused)));
  EXPECT_THAT(refusal_of(R"([{"parameters": ["wpe.*"], "learning_rate_factor": 1}])"), HasSubstr(refused));
  EXPECT_THAT(refusal_of(R"([{"parameters": ["wpe.*"]}, {"parameters": ["wte.*"], "weight_decay": 0}])"),
              HasSubstr(refused));
  EXPECT_THAT(refusal_of(R"([{"parameters": ["w*"], "weight_decay": 0}, {"parameters": ["*"]}])"),
              AllOf(HasSubstr("group 2"), HasSubstr(refused)));
  EXPECT_EQ(refusal_of(R"([{"parameters": ["wpe.*"]}, {"parameters": ["w*"], "weight_decay": 0}])"), "");
}

TEST(ParameterGroupsSetting, what_has_no_meaning_is_refused_where_it_stands) {
  const auto of = [](const std::string& more, const std::string& others = "") {
    return refusal_of(fmt::format(R"([{{"parameters": "wpe.*"}}, {{"parameters": "wte.*", {}}}])", more),
                      others);
  };
  EXPECT_THAT(of(R"("betas": 0.9)"), HasSubstr("parameter_groups\", group 2, \"betas\": 0.9 is not a list"));
  EXPECT_THAT(of(R"("betas": [0.9, 1])"), HasSubstr("group 2, \"betas\": 1 is not a number"));
  EXPECT_THAT(of(R"("eps": -1)"), HasSubstr("group 2, \"eps\": -1"));
  EXPECT_THAT(of(R"("weight_decy": 1)"), HasSubstr("Did you mean \"weight_decay\"?"));
  EXPECT_THAT(of(R"("betas": [0.9, 0.99])", R"("optimizer": "sgd",)"),
              HasSubstr("\"betas\" of group 2 of \"headrace.parameter_groups\" would have no effect"));
  EXPECT_THAT(of(R"("eps": 1e-8)", R"("optimizer": "lion",)"), HasSubstr("\"eps\" of group 2"));
  EXPECT_THAT(refusal_of(R"([{"weight_decay": 0}])"), HasSubstr("says of no parameter that it is its"));
  EXPECT_THAT(refusal_of(R"([3])"), HasSubstr("parameter_groups\", group 1: 3 is not an object"));
  EXPECT_THAT(refusal_of(R"({"parameters": "wpe.*"})"), HasSubstr("is not a list of groups"));
}

}  // namespace
}  // namespace headrace
