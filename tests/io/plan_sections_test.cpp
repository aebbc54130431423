// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/plan_sections.h"

#include <gtest/gtest.h>

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

Controller late_controller() {
  return Controller({{.name = "x"}, {.name = "y"}}, {.lag = 1}, {.can_rerun = true, .sites = 1});
}

// Files of every version have these bytes.
TEST(PlanSections, TextIsAsItHasAlwaysBeen) {
  Controller controller = late_controller();
  controller.begin(1);
  controller.begin(2);
  const PlanNotes notes{.whys = {{4, "a \"spike\""}}, .called_why = "b", .disarm_step = 9};
  ExtraSections sections;
  add_plan(controller, false, notes, sections);
  EXPECT_EQ(sections, (ExtraSections{{"decisions_in_flight", "[[]]"}, {"gated_steps", kPlan}}));
  const LoadedPlan loaded = read_plan(sections, controller.units());
  EXPECT_EQ(loaded.plan, controller.plan_state());
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
  EXPECT_TRUE(sections.at("gated_steps").ends_with(R"(,"doubt":4})"));
  LoadedPlan loaded = read_plan(sections, controller.units());
  EXPECT_EQ(loaded.plan, controller.plan_state());
  for (const char* const bad : {"0", "3", "16", "-2", "4.5", "\"4\"", "18446744073709551616"}) {
    std::string text = sections.at("gated_steps");
    text.replace(text.find("\"doubt\":4"), 9, std::string("\"doubt\":") + bad);
    const std::string message = test::error_of<Error>([&] { read_plan({{"gated_steps", text}}, controller.units()); });
    EXPECT_TRUE(message.starts_with("controller state: the section gated_steps is damaged: `doubt`")) << message;
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
