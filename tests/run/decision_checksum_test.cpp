// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/decision_checksum.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "gnmr/run/supervisor.h"

namespace gnmr::run {
namespace {

using Indices = std::vector<UnitIndex>;

TEST(DecisionChecksum, SeesEachPartOfADecision) {
  const Indices one{1}, two{2}, none;
  std::set<std::uint32_t> seen;
  const auto add = [&](const Outcome& outcome) { EXPECT_TRUE(seen.insert(checksum_of(outcome)).second); };
  add({});
  add({.decision = {.step = 1}});
  add({.decision = {.common = true}});
  add({.decision = {.recovered = one}});
  add({.decision = {.recovered = two}});
  add({.decision = {.admitted = one}});
  add({.decision = {.denied = one}});
  add({.decision = {.futile = one}});
  add({.decision = {.released = one}});
  add({.verdict = Verdict::numeric});
  add({.action = Action::hold});
  EXPECT_EQ(checksum_of(Outcome{.decision = {.recovered = none}}), checksum_of(Outcome{}));
}

TEST(DecisionChecksum, SeesEachPartOfTheCommonState) {
  const Indices high{3, 4};
  const std::vector<SwitchRule> rules = parse_switch_rules({"a*=high", "b=low@3:5"});
  const std::vector<SwitchRule> others = parse_switch_rules({"a*=high", "b=low@3:6"});
  std::set<std::uint32_t> seen;
  for (const CommonState& state : {CommonState{}, CommonState{.decision = 1}, CommonState{.high = high},
                                   CommonState{.mode = 1}, CommonState{.rules = rules}, CommonState{.rules = others}}) {
    EXPECT_TRUE(seen.insert(checksum_of(state)).second);
  }
}

TEST(DecisionChecksum, EqualSupervisorsHaveEqualOnes) {
  const std::vector<Unit> units{{.name = "a"}, {.name = "b"}};
  Options options;
  options.warmup_samples = 2;
  options.max_o = 2;
  options.common_share = 1;
  Supervisor one(units, {.options = options}, {});
  Supervisor two(units, {.options = options}, {});
  for (std::int64_t step = 1; step < 8; ++step) {
    const std::vector<double> norms{1.0, step == 5 ? 100.0 : 1.0};
    for (Supervisor* each : {&one, &two}) {
      each->begin(step);
      each->report({.step = step, .norms = norms}, {});
    }
    EXPECT_EQ(one.checksum(), two.checksum());
  }
  const std::uint32_t before = one.checksum();
  one.set_mode(Mode::watch, "a test");
  EXPECT_NE(one.checksum(), before);
  one.set_mode(Mode::armed, "a test");
  EXPECT_EQ(one.checksum(), before);
  one.set_rules(parse_switch_rules({"a=high"}));
  EXPECT_NE(one.checksum(), before);
}

}  // namespace
}  // namespace gnmr::run
