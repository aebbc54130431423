// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/options.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "gnmr/core/controller.h"
#include "gnmr/core/error.h"

namespace gnmr {
namespace {

std::string message_of(std::string_view name, const auto& value) {
  Options options;
  try {
    set_option(options, name, value);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Options, AValueOutOfRangeIsNamedWithItsRange) {
  EXPECT_EQ(message_of("beta", 1.0), "option `beta`: expected [0, 1), got 1");
  EXPECT_EQ(message_of("window", 0), "option `window`: expected integer 1..1024, got 0");
  EXPECT_EQ(message_of("tua", 1.0), "unknown option `tua`; did you mean 'tau'?");
  EXPECT_EQ(message_of("tau", std::numeric_limits<double>::quiet_NaN()), "option `tau`: expected >= 1, got nan");
}

TEST(Options, AWordIsOneOfItsListAndKeptAsItsPlace) {
  Options options;
  EXPECT_EQ(options.selector, Selector::automatic);
  EXPECT_EQ(Options::preset("paper").selector, Selector::norms);
  set_option(options, "selector", std::string_view("evidence-alarm"));
  EXPECT_EQ(options.selector, Selector::evidence_after_alarm);
  set_option(options, "guard", std::string_view("replay"));
  EXPECT_EQ(options.guard, Guard::replay);
  EXPECT_EQ(find_option("guard")->word_of(find_option("guard")->get(options)), "replay");
  EXPECT_EQ(message_of("selector", std::string_view("trails")),
            "option `selector`: expected one of auto, norms, evidence, evidence-alarm, trial, got `trails`; did you "
            "mean 'trial'?");
  EXPECT_EQ(message_of("guard", std::string_view("1")),
            "option `guard`: expected one of none, clip, skip, replay, got `1`");
  EXPECT_EQ(message_of("guard", 4.0), "option `guard`: expected one of none, clip, skip, replay, got 4");
  EXPECT_NE(message_of("guard", 0.5), "");
  EXPECT_EQ(message_of("tau", std::string_view("2")), "option `tau`: expected >= 1, got `2`");
  EXPECT_EQ(message_of("tua", std::string_view("2")), "unknown option `tua`; did you mean 'tau'?");
}

struct RangeCase {
  const char* name;
  double value;
  bool allowed;
};

class OptionRanges : public ::testing::TestWithParam<RangeCase> {};

TEST_P(OptionRanges, AreThoseOfTheSpecification) {
  const RangeCase& given = GetParam();
  EXPECT_EQ(message_of(given.name, given.value).empty(), given.allowed) << given.name << " = " << given.value;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
INSTANTIATE_TEST_SUITE_P(
    Spec, OptionRanges,
    ::testing::Values(
        RangeCase{"beta", 0, true}, RangeCase{"beta", -0.1, false}, RangeCase{"tau", 1, true},
        RangeCase{"tau", 0.99, false}, RangeCase{"tau", kInfinity, false}, RangeCase{"delta_tau", 1e-6, true},
        RangeCase{"delta_tau", 9e-7, false}, RangeCase{"fall_tau", 0, true}, RangeCase{"fall_tau", 9e-7, false},
        RangeCase{"baseline", 1, true}, RangeCase{"baseline", 1.01, false}, RangeCase{"window", 1024, true},
        RangeCase{"window", 1025, false}, RangeCase{"window", 2.5, false}, RangeCase{"noise_factor", -1, false},
        RangeCase{"mean_cap", 0, true}, RangeCase{"mean_cap", 1, false}, RangeCase{"mean_cap", 1.001, true},
        RangeCase{"warmup_samples", 0, false}, RangeCase{"warmup_samples", 2147483647, true},
        RangeCase{"warmup_samples", 2147483648.0, false}, RangeCase{"common_share", 0, false},
        RangeCase{"common_share", 1, true}, RangeCase{"lock_steps", 0, false}, RangeCase{"max_lock_steps", 0, true},
        RangeCase{"max_o", 0, true}, RangeCase{"max_o", 0.5, true}, RangeCase{"max_o", 1, true},
        RangeCase{"max_o", 2.5, false}, RangeCase{"max_o", -1, false}, RangeCase{"max_cost", 0, false},
        RangeCase{"max_cost", 1, true}, RangeCase{"group_max", -1, false}, RangeCase{"lag", 2, false},
        RangeCase{"selector", 4, true}, RangeCase{"selector", 5, false}, RangeCase{"selector", -1, false},
        RangeCase{"max_trials", 0, true}, RangeCase{"max_trials", 100, true}, RangeCase{"max_trials", 101, false},
        RangeCase{"error_factor", 1, true}, RangeCase{"error_factor", 0.9, false}, RangeCase{"error_floor", 0, true},
        RangeCase{"error_floor", -0.1, false}, RangeCase{"error_floor", 1e300, true},
        RangeCase{"error_ceiling", 0, true}, RangeCase{"error_ceiling", 0.5, false}, RangeCase{"error_beta", 1, false},
        RangeCase{"error_warmup", 0, false}));

TEST(Options, LagMustBeBelowLockSteps) {
  Options options;
  options.lag = 1;
  options.lock_steps = 1;
  EXPECT_THROW(validate(options), Error);
  options.lock_steps = 2;
  EXPECT_NO_THROW(validate(options));
}

TEST(Options, TheErrorFloorIsAnErrorAndTheCeilingAFactorSoEitherMayBeLarger) {
  Options options;
  options.error_floor = 9;
  EXPECT_NO_THROW(validate(options));
  options.error_ceiling = 1;
  EXPECT_NO_THROW(validate(options));
}

TEST(Options, ABudgetIsAFractionOrACount) {
  const auto budget = [](double max_o, std::size_t units) {
    Options options;
    options.max_o = max_o;
    std::vector<Unit> list;
    for (std::size_t i = 0; i < units; ++i) list.push_back({.name = std::to_string(i)});
    return Controller(list, options).max_recovered();
  };
  EXPECT_EQ(budget(0.01, 280), 2u);
  EXPECT_EQ(budget(0.01, 40), 1u);
  EXPECT_EQ(budget(0.29, 100), 28u);  // floor of 0.29 * 100 in double, which is a little below 29
  EXPECT_EQ(budget(0, 100), 0u);
  EXPECT_EQ(budget(1, 100), 1u);
  EXPECT_EQ(budget(7, 3), 7u);
}

TEST(Options, UnknownPresetIsAnError) { EXPECT_THROW(Options::preset("papre"), Error); }

TEST(Units, BadOnesAreRefused) {
  EXPECT_THROW(Controller({{.name = ""}}), Error);
  EXPECT_THROW(Controller({{.name = "a"}, {.name = "a"}}), Error);
  EXPECT_THROW(Controller({{.name = "a", .cost = 0}}), Error);
  const std::int64_t large = std::int64_t{1} << 53;
  EXPECT_NO_THROW(Controller({{.name = "a", .cost = large}}));
  EXPECT_THROW(Controller({{.name = "a", .cost = large}, {.name = "b"}}), Error);
  Options options;
  options.max_cost = 0.1;
  EXPECT_THROW(Controller({{.name = "a"}, {.name = "b"}}, options), Error);
  EXPECT_NO_THROW(Controller(std::vector<Unit>{}, options));
}

}  // namespace
}  // namespace gnmr
