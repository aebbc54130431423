// SPDX-License-Identifier: Apache-2.0
// A controller that is saved and loaded at any step decides as if nothing had happened; so does one that loads a file
// of the first version.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gnmr/core/controller.h"
#include "gnmr/core/judge.h"
#include "gnmr/io/state_file.h"
#include "io/golden_run.h"

namespace gnmr::io {
namespace {

using golden::GoldenRow;
using golden::GoldenRun;
using golden::load_golden;

nlohmann::json decide(Controller& controller, const GoldenRow& row) {
  return golden::decision_json(controller.step({.step = row.step, .norms = row.norms, .sampled = row.sampled}),
                               controller.units());
}

// Saves after every `stride`-th row and follows each copy to the end, or for `longest` rows.
void expect_resumable(const std::string& name, std::size_t stride, std::size_t longest) {
  const GoldenRun run = load_golden(name);
  Controller controller(run.units, run.options);
  for (std::size_t cut = 0; cut < run.rows.size(); ++cut) {
    ASSERT_EQ(decide(controller, run.rows[cut]), run.rows[cut].decision) << name << ", row " << cut;
    if (cut % stride != 0) continue;
    const ControllerState state = controller.save();
    const std::string bytes = encode_state(state);
    const LoadedState loaded = decode_state(std::as_bytes(std::span(bytes)));
    ASSERT_EQ(loaded.state.controller, state) << name << ", row " << cut;
    Controller resumed(run.units, run.options);
    ASSERT_TRUE(resumed.restore(loaded.state.controller).exact());
    ASSERT_EQ(resumed.save(), state) << name << ", row " << cut;
    for (std::size_t row = cut + 1; row < std::min(run.rows.size(), cut + 1 + longest); ++row) {
      ASSERT_EQ(decide(resumed, run.rows[row]), run.rows[row].decision) << name << ", cut " << cut << ", row " << row;
    }
  }
}

TEST(StateResume, AnyStepOfEveryShortTrace) {
  for (const std::string& name : golden::golden_names()) {
    if (name != "long_run") expect_resumable(name, name.starts_with("random") ? 23 : 3, 60);
  }
}

TEST(StateResume, FarIntoALongRun) { expect_resumable("long_run", 1999, 100); }

// Made by saving after row 15 of the trace mixed_03 with the first version of the format; it stays as it is for ever.
const std::string kFirstVersion = std::string(GNMR_TEST_ASSETS_DIR) + "/state_v1.gnmr";
constexpr std::size_t kFirstRowAfter = 16;

TEST(StateResume, AFileOfTheFirstVersionHoldsWhatItHeld) {
  const LoadedState loaded = load_state(kFirstVersion);
  EXPECT_EQ(loaded.extra_sections, (ExtraSections{{"note", "kept for ever"}}));
  EXPECT_EQ(loaded.state.controller.decisions, 16U);
  EXPECT_EQ(loaded.state.controller.last_step, 15);
  EXPECT_EQ(loaded.state.controller.options.mean_cap, 1.5);
  EXPECT_EQ(loaded.state.controller.options.max_lock_steps, 160);
  ASSERT_EQ(loaded.state.controller.units.size(), 7U);
  const UnitState& recovered = loaded.state.controller.units[4];
  EXPECT_EQ(recovered.name, "u4");
  EXPECT_EQ(recovered.samples, 6U);
  EXPECT_EQ(recovered.changes, 2U);
  EXPECT_EQ(recovered.mean_sum, 1.1226086307857155e+300);
  EXPECT_EQ(recovered.rise_change_sum, 0.20751600625655198);
  EXPECT_EQ(recovered.fall_change_sum, 0.21140011485387145);
  EXPECT_EQ(recovered.ratios.size(), 5U);
  EXPECT_EQ(recovered.inverses.size(), 5U);
  EXPECT_EQ(recovered.last_lock_steps, 8U);
  EXPECT_TRUE(recovered.was_released && recovered.in_recovery && recovered.sampled_in_recovery);
  EXPECT_EQ(recovered.samples_since_release, 3U);
  EXPECT_EQ(recovered.steps_left, 7U);
  EXPECT_EQ(recovered.steps_in_recovery, 1U);
  EXPECT_EQ(recovered.admitted_for, RiskKind::non_finite);
  const UnitState& waiting = loaded.state.controller.units[6];
  EXPECT_EQ(waiting.ratios[0], 1.1155673102561576);
  EXPECT_EQ(waiting.inverses[0], 0.86114159356714426);
  EXPECT_EQ(waiting.wait_steps, 1U);
  EXPECT_TRUE(waiting.zero_muted);
  EXPECT_FALSE(waiting.in_recovery);
  EXPECT_EQ(loaded.state.places, 0U) << "it knows nothing of errors";
}

TEST(StateResume, AFileOfTheFirstVersionLeadsToTheSameDecisions) {
  const GoldenRun run = load_golden("mixed_03");
  Controller controller(run.units, run.options);
  EXPECT_TRUE(controller.restore(load_state(kFirstVersion).state.controller).exact());
  EXPECT_EQ(controller.decisions(), kFirstRowAfter);
  for (std::size_t row = kFirstRowAfter; row < run.rows.size(); ++row) {
    ASSERT_EQ(decide(controller, run.rows[row]), run.rows[row].decision) << row;
  }
}

// A judge that goes by norms, without a guard, is the plain controller.
TEST(StateResume, AJudgeByNormsDecidesEveryGoldenTrace) {
  for (const std::string& name : golden::golden_names()) {
    GoldenRun run = load_golden(name);
    run.options.selector = Selector::norms;
    Judge judge(run.units, run.options, {.places = 2, .expected = {}, .can_rerun = true});
    for (std::size_t row = 0; row < run.rows.size(); ++row) {
      const GoldenRow& given = run.rows[row];
      judge.hear({.step = given.step, .norms = given.norms, .sampled = given.sampled});
      ASSERT_EQ(golden::decision_json(judge.decide().decision, run.units), given.decision) << name << ", row " << row;
    }
  }
}

// And a file of the first version is one that a judge can go on from.
TEST(StateResume, AJudgeGoesOnFromAFileOfTheFirstVersion) {
  GoldenRun run = load_golden("mixed_03");
  run.options.selector = Selector::norms;
  Judge judge(run.units, run.options, {.places = 3});
  EXPECT_TRUE(judge.restore(load_state(kFirstVersion).state).exact());
  for (std::size_t row = kFirstRowAfter; row < run.rows.size(); ++row) {
    const GoldenRow& given = run.rows[row];
    judge.hear({.step = given.step, .norms = given.norms, .sampled = given.sampled});
    ASSERT_EQ(golden::decision_json(judge.decide().decision, run.units), given.decision) << row;
  }
}

}  // namespace
}  // namespace gnmr::io
