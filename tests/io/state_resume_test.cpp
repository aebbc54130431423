// SPDX-License-Identifier: Apache-2.0
// A controller that is saved and loaded at any step decides as if nothing had happened; so does one that loads a file
// of the first version.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/run_step.h"
#include "gnmr/io/state_file.h"
#include "io/golden_run.h"

namespace gnmr::io {
namespace {

using gnmr::testing::norms_controller;
using gnmr::testing::run_step;
using golden::GoldenRow;
using golden::GoldenRun;
using golden::load_golden;

nlohmann::json decide(Controller& controller, const GoldenRow& row) {
  const Outcome& outcome = run_step(controller, {.step = row.step, .norms = row.norms, .sampled = row.sampled});
  return golden::decision_json(outcome.decision, controller.units());
}

// Saves after every `stride`-th row and follows each copy to the end, or for `longest` rows.
void expect_resumable(const std::string& name, std::size_t stride, std::size_t longest) {
  const GoldenRun run = load_golden(name);
  Controller controller = norms_controller(run.units, run.options);
  for (std::size_t cut = 0; cut < run.rows.size(); ++cut) {
    ASSERT_EQ(decide(controller, run.rows[cut]), run.rows[cut].decision) << name << ", row " << cut;
    if (cut % stride != 0) continue;
    const ControllerState state = controller.save();
    const std::string bytes = encode_state(state);
    const LoadedState loaded = decode_state(std::as_bytes(std::span(bytes)));
    ASSERT_EQ(loaded.state, state) << name << ", row " << cut;
    Controller resumed = norms_controller(run.units, run.options);
    ASSERT_TRUE(resumed.restore(loaded.state).exact());
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
  EXPECT_EQ(loaded.state.decisions, 16U);
  EXPECT_EQ(loaded.state.last_step, 15);
  EXPECT_EQ(loaded.state.options.mean_cap, 1.5);
  EXPECT_EQ(loaded.state.options.max_lock_steps, 160);
  ASSERT_EQ(loaded.state.units.size(), 7U);
  const UnitState& recovered = loaded.state.units[4];
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
  const UnitState& waiting = loaded.state.units[6];
  EXPECT_EQ(waiting.ratios[0], 1.1155673102561576);
  EXPECT_EQ(waiting.inverses[0], 0.86114159356714426);
  EXPECT_EQ(waiting.wait_steps, 1U);
  EXPECT_TRUE(waiting.zero_muted);
  EXPECT_FALSE(waiting.in_recovery);
  EXPECT_EQ(loaded.state.sites, 0U) << "it knows nothing of errors";
}

TEST(StateResume, AFileOfTheFirstVersionLeadsToTheSameDecisions) {
  const GoldenRun run = load_golden("mixed_03");
  Controller controller = norms_controller(run.units, run.options);
  EXPECT_TRUE(controller.restore(load_state(kFirstVersion).state).exact());
  EXPECT_EQ(controller.decisions(), kFirstRowAfter);
  for (std::size_t row = kFirstRowAfter; row < run.rows.size(); ++row) {
    ASSERT_EQ(decide(controller, run.rows[row]), run.rows[row].decision) << row;
  }
}

// Errors that are known but do not count change nothing.
TEST(StateResume, AControllerByNormsThatCouldRunAgainDecidesEveryGoldenTrace) {
  for (const std::string& name : golden::golden_names()) {
    GoldenRun run = load_golden(name);
    run.options.selector = Selector::norms;
    Controller controller(run.units, run.options, {.can_rerun = true, .sites = 2});
    for (std::size_t row = 0; row < run.rows.size(); ++row) {
      ASSERT_EQ(decide(controller, run.rows[row]), run.rows[row].decision) << name << ", row " << row;
    }
  }
}

// And a file of the first version is one that such a controller can go on from.
TEST(StateResume, AControllerWithErrorsGoesOnFromAFileOfTheFirstVersion) {
  GoldenRun run = load_golden("mixed_03");
  run.options.selector = Selector::norms;
  Controller controller(run.units, run.options, {.sites = 3});
  EXPECT_TRUE(controller.restore(load_state(kFirstVersion).state).exact());
  for (std::size_t row = kFirstRowAfter; row < run.rows.size(); ++row) {
    ASSERT_EQ(decide(controller, run.rows[row]), run.rows[row].decision) << row;
  }
}

}  // namespace
}  // namespace gnmr::io
