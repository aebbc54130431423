// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/plan_sections.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gnmr/core/controller.h"
#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::io {
namespace {

constexpr const char* kPlan =
    R"({"called":false,"called_why":"b","disarm_step":9,"disarm_why":"","next_batch":3,"not_free":[],)"
    R"("undecided":[{"again":false,"batch":1,"begun":true,"failed":false,"hold":"for_trial","in_force":true,)"
    R"("may_rerun":true,"pass":"step","step":1},{"again":false,"batch":2,"begun":true,"failed":false,)"
    R"("hold":"for_trial","in_force":true,"may_rerun":true,"pass":"step","step":2}],"waiting":[],)"
    R"("whys":[[4,"a \"spike\""]],"zero_muted":[]})";

/// So many decisions later: plans of the first ones are made in doubt.
Controller after_the_first_decisions(Controller controller) {
  ControllerState state = controller.save();
  state.decisions = 100;
  controller.restore(state);
  return controller;
}

Controller late_controller() {
  return after_the_first_decisions(
      Controller({{.name = "x"}, {.name = "y"}}, {.lag = 1}, {.can_rerun = true, .sites = 1}));
}

// Files of every version have these bytes.
TEST(PlanSections, TextIsAsItHasAlwaysBeen) {
  Controller controller = late_controller();
  controller.begin(1);
  controller.begin(2);
  const PlanNotes notes{.whys = {{4, "a \"spike\""}}, .called_why = "b", .disarm_step = 9};
  ExtraSections sections;
  add_plan(controller, false, notes, sections);
  std::string with_limits = kPlan;
  with_limits.insert(with_limits.size() - 1, R"(,"error_limits":{"sites":1,"units":[]})");
  EXPECT_EQ(sections, (ExtraSections{{"decisions_in_flight", "[[],[]]"}, {"gated_steps", with_limits}}));
  EXPECT_EQ(read_plan(sections, controller.units()).plan, controller.plan_state());
  // An earlier version's: without limits.
  const LoadedPlan loaded = read_plan({{"decisions_in_flight", "[[],[]]"}, {"gated_steps", kPlan}}, controller.units());
  PlanState expected = controller.plan_state();
  expected.error_limits.clear();
  EXPECT_EQ(loaded.plan, expected);
  EXPECT_EQ(loaded.notes->whys, notes.whys);
  EXPECT_EQ(loaded.notes->called_why, "b");
  EXPECT_EQ(loaded.notes->disarm_step, 9);
}

TEST(PlanSections, ADoubtIsKeptAndNoneIsNotWritten) {
  Controller controller = late_controller();
  ControllerState state = controller.save();
  state.doubt = {.value = 4, .decisions_left = 100};
  controller.restore(state);
  controller.begin(1);
  for (const std::uint8_t flags : controller.plan_state().flags) EXPECT_EQ(flags, gate_flag::kFree | 8);
  ExtraSections sections;
  add_plan(controller, false, {}, sections);
  EXPECT_TRUE(sections.at("gated_steps").find(R"(,"doubt":4,)") != std::string::npos);
  LoadedPlan loaded = read_plan(sections, controller.units());
  EXPECT_EQ(loaded.plan, controller.plan_state());
  for (const char* const bad : {"0", "3", "16", "-2", "4.5", "\"4\"", "18446744073709551616"}) {
    std::string text = sections.at("gated_steps");
    text.replace(text.find("\"doubt\":4"), 9, std::string("\"doubt\":") + bad);
    const std::string message = test::error_of<Error>([&] { read_plan({{"gated_steps", text}}, controller.units()); });
    EXPECT_TRUE(message.starts_with("controller state: the section gated_steps is damaged: `doubt`")) << message;
  }
}

TEST(PlanSections, LimitsOfErrorsAreKeptBitForBit) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<Unit> units{{.name = "x"}, {.name = "y"}, {.name = "z"}};
  Controller controller =
      after_the_first_decisions(Controller(units, {.lag = 1, .error_warmup = 1}, {.can_rerun = true, .sites = 2}));
  const std::vector<double> norms(3, 1.0);
  const double none = std::nan("");
  controller.begin(1);
  controller.begin(2);
  controller.report({.step = 1, .norms = norms, .errors = std::vector<double>{0.3, none, none, none, 1.0 / 7, 0.7}});
  controller.report({.step = 2, .norms = norms});
  // The plan of step 3 was made before the decision of step 2, and after that of step 1.
  const std::vector<float>& limits = controller.plan_state().error_limits;
  ASSERT_EQ(limits.size(), 6u);
  EXPECT_EQ(limits[1], kInfinity);
  EXPECT_TRUE(std::isfinite(limits[0]) && std::isfinite(limits[4]) && std::isfinite(limits[5])) << "they have learned";
  ExtraSections sections;
  add_plan(controller, false, {}, sections);
  EXPECT_EQ(read_plan(sections, units).plan, controller.plan_state());
  // Other units: by name, as far as they are known.
  const LoadedPlan other = read_plan(sections, {{.name = "new"}, {.name = "z"}});
  EXPECT_EQ(other.plan.error_limits, (std::vector<float>{kInfinity, kInfinity, limits[4], limits[5]}));
  // A controller with other sites takes the plan without limits.
  Controller fewer(units, {.lag = 1}, {.can_rerun = true, .sites = 1});
  fewer.restore(fewer.save(), controller.plan_state());
  EXPECT_TRUE(fewer.plan_state().error_limits.empty());
  for (const char* const bad :
       {R"({"sites":0,"units":[]})", R"({"sites":17,"units":[]})", R"({"units":[]})",
        R"({"sites":1,"units":[{"limits":[1,2],"unit":"x"}]})", R"({"sites":1,"units":[{"limits":[-1],"unit":"x"}]})",
        R"({"sites":1,"units":[{"limits":["nan"],"unit":"x"}]})"}) {
    std::string text = kPlan;
    text.insert(text.size() - 1, std::string(R"(,"error_limits":)") + bad);
    const std::string message = test::error_of<Error>([&] { read_plan({{"gated_steps", text}}, units); });
    EXPECT_TRUE(message.starts_with("controller state: the section gated_steps is damaged: `error_limits")) << message;
  }
}

TEST(PlanSections, UnitsGoByNameAndUnknownOnesAreLeftOut) {
  const std::vector<Unit> units{{.name = "x"}, {.name = "y"}, {.name = "z"}};
  const LoadedPlan loaded = read_plan({{"decisions_in_flight", R"([["gone","z","x"],["y"]])"}}, units);
  EXPECT_EQ(loaded.plan.recovered, (std::vector<UnitIndex>{0, 2}));
  EXPECT_TRUE(loaded.plan.recovered_is_next);
  EXPECT_FALSE(loaded.notes.has_value());
}

TEST(PlanSections, DamageIsAnErrorThatNamesTheSection) {
  const std::vector<Unit> units{{.name = "x"}};
  const auto error = [&](const char* section, const std::string& text) {
    return test::error_of<Error>([&] { read_plan({{section, text}}, units); });
  };
  const std::string gated = "controller state: the section gated_steps is damaged: ";
  for (const char* const text : {"", "[", "[]", "{}"}) {
    EXPECT_TRUE(error("gated_steps", text).starts_with(gated)) << text;
  }
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = kPlan;
    text.replace(text.find(from), from.size(), to);
    return error("gated_steps", text);
  };
  EXPECT_EQ(changed("\"step\",\"step\":1", "\"jump\",\"step\":1"), gated + "`undecided[0].pass`: unknown word");
  EXPECT_EQ(changed("\"next_batch\":3", "\"next_batch\":\"3\""),
            gated + "`next_batch`: expected a whole number of 64 bits, got string");
  EXPECT_EQ(changed("[4,", "[true,"), gated + "`whys[0][0]`: expected a whole number of 64 bits, got boolean");
  const std::string in_flight = "controller state: the section decisions_in_flight is damaged: ";
  EXPECT_EQ(error("decisions_in_flight", "{}"), in_flight + "expected a list, got object");
  EXPECT_EQ(error("decisions_in_flight", "[[1]]"), in_flight + "`[0][0]`: expected a string, got number");
}

}  // namespace
}  // namespace gnmr::io
