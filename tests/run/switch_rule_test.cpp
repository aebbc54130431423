// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/switch_rule.h"

#include <gtest/gtest.h>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::run {
namespace {

constexpr std::int64_t kForEver = std::numeric_limits<std::int64_t>::max();

TEST(SwitchRule, ReadsEveryForm) {
  EXPECT_EQ(parse_switch_rule("a*=high"), (SwitchRule{"a*", Path::high, 1, kForEver}));
  EXPECT_EQ(parse_switch_rule("a=low@3:9"), (SwitchRule{"a", Path::low, 3, 9}));
  EXPECT_EQ(parse_switch_rule("a=low@3:"), (SwitchRule{"a", Path::low, 3, kForEver}));
  EXPECT_EQ(parse_switch_rule("a=high@:9"), (SwitchRule{"a", Path::high, 1, 9}));
  EXPECT_EQ(parse_switch_rule("a=b=high@7:7"), (SwitchRule{"a=b", Path::high, 7, 7}));
}

TEST(SwitchRule, RefusesTheRestAndShowsTheForms) {
  for (const char* text : {"", "head", "=high", "a=hi", "a=", "a=high@", "a=high@7", "a=high@:", "a=high@0:4",
                           "a=high@-1:4", "a=high@+1:4", "a=high@9:3", "a=high@1:2:3", "a=high@x:", "a=high@1: 2",
                           "a=high@99999999999999999999:", "a=HIGH"}) {
    const std::string message = test::error_of<Error>([&] { parse_switch_rule(text); });
    EXPECT_NE(message.find("a rule is GLOB=high or GLOB=low, with @A:B, @A: or @:B"), std::string::npos) << text;
  }
}

TEST(SwitchRule, AppliesToNamesAndStepsBothEndsIncluded) {
  const SwitchRule rule = parse_switch_rule("layers.?.up=high@3:5");
  EXPECT_FALSE(rule.applies("layers.1.up", 2));
  EXPECT_TRUE(rule.applies("layers.1.up", 3));
  EXPECT_TRUE(rule.applies("layers.1.up", 5));
  EXPECT_FALSE(rule.applies("layers.1.up", 6));
  EXPECT_FALSE(rule.applies("layers.10.up", 4));
}

TEST(SwitchRule, TheLastOneThatAppliesWins) {
  const std::vector<SwitchRule> rules = parse_switch_rules({"*=high@10:20", "head=low@15:"});
  EXPECT_EQ(forced_path(rules, "head", 9), std::nullopt);
  EXPECT_EQ(forced_path(rules, "head", 14), Path::high);
  EXPECT_EQ(forced_path(rules, "head", 15), Path::low);
  EXPECT_EQ(forced_path(rules, "up", 15), Path::high);
  EXPECT_EQ(forced_path(rules, "head", 100), Path::low);
  EXPECT_EQ(forced_path({}, "head", 1), std::nullopt);
}

}  // namespace
}  // namespace gnmr::run
