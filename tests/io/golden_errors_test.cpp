// SPDX-License-Identifier: Apache-2.0
// The golden traces with errors give the golden decisions, saved and loaded at any step too.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/run_step.h"
#include "gnmr/io/state_file.h"
#include "io/golden_run.h"

namespace gnmr::io {
namespace {

Controller golden_controller(const golden::GoldenRun& run) {
  return Controller(run.units, run.options, {.can_rerun = true, .sites = run.sites});
}

// A trial has the norms and the errors of the step: tests/golden/README.md.
nlohmann::json decide_with_errors(Controller& controller, const golden::GoldenRow& row) {
  const StepReport report{.step = row.step, .norms = row.norms, .sampled = row.sampled, .errors = row.errors};
  const Outcome* outcome = &gnmr::testing::run_step(controller, report);
  if (gnmr::testing::wants_trial(*outcome)) outcome = &gnmr::testing::run_step(controller, report);
  return golden::decision_json(outcome->decision, controller.units());
}

TEST(GoldenErrors, GiveTheGoldenDecisions) {
  const std::vector<std::string> names = golden::golden_names(golden::Beside::errors);
  EXPECT_GE(names.size(), 5U);
  for (const std::string& name : names) {
    const golden::GoldenRun run = golden::load_golden(name);
    Controller controller = golden_controller(run);
    for (const golden::GoldenRow& row : run.rows) {
      ASSERT_EQ(decide_with_errors(controller, row), row.decision) << name << ", step " << row.step;
    }
  }
}

TEST(GoldenErrors, GiveTheGoldenDecisionsFromAnyState) {
  for (const std::string& name : golden::golden_names(golden::Beside::errors)) {
    const golden::GoldenRun run = golden::load_golden(name);
    Controller controller = golden_controller(run);
    for (const golden::GoldenRow& row : run.rows) {
      const ControllerState state = controller.save();
      const std::string bytes = encode_state(state);
      const LoadedState loaded = decode_state(std::as_bytes(std::span(bytes)));
      ASSERT_EQ(loaded.state, state) << name << ", step " << row.step;
      Controller resumed = golden_controller(run);
      ASSERT_TRUE(resumed.restore(loaded.state).exact()) << name << ", step " << row.step;
      ASSERT_EQ(resumed.save(), state) << name << ", step " << row.step;
      ASSERT_EQ(decide_with_errors(resumed, row), row.decision) << name << ", step " << row.step;
      controller = std::move(resumed);
    }
  }
}

}  // namespace
}  // namespace gnmr::io
