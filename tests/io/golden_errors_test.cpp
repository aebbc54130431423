// SPDX-License-Identifier: Apache-2.0
// The golden traces with errors give the golden decisions, saved and loaded at any step too.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/run_step.h"
#include "gnmr/core/host_gate.h"
#include "gnmr/io/plan_sections.h"
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

nlohmann::json gated_json(const Decision& decision, bool held, const std::vector<Unit>& units) {
  nlohmann::json line = golden::decision_json(decision, units);
  if (held) line["held"] = true;
  return line;
}

/// A controller with lag 1 and its gate.
struct Gated {
  explicit Gated(const golden::GoldenRun& run) : controller(golden_controller(run)), gate(controller) {}

  /// Whether the gate holds the step of the row.
  bool run(const golden::GoldenRow& row) { return gate.holds(controller.begin(row.step), report_of(row, false)); }

  nlohmann::json report(const golden::GoldenRow& row, bool held) {
    return gated_json(controller.report(report_of(row, held)).decision, held, controller.units());
  }

  static StepReport report_of(const golden::GoldenRow& row, bool held) {
    return {.step = row.step, .norms = row.norms, .sampled = row.sampled, .errors = row.errors, .held = held};
  }

  Controller controller;
  HostGate gate;
};

TEST(GoldenErrors, GiveTheGoldenDecisionsWithAGate) {
  std::size_t runs = 0;
  for (const std::string& name : golden::golden_names(golden::Beside::errors)) {
    const golden::GoldenRun run = golden::load_golden(name);
    if (run.options.lag == 0) continue;
    ++runs;
    Gated gated(run);
    std::vector<bool> held;
    for (std::size_t index = 0; index < run.rows.size(); ++index) {
      held.push_back(gated.run(run.rows[index]));
      if (index == 0) continue;
      const golden::GoldenRow& before = run.rows[index - 1];
      ASSERT_EQ(gated.report(before, held[index - 1]), before.decision) << name << ", step " << before.step;
    }
  }
  EXPECT_GE(runs, 2U);
}

TEST(GoldenErrors, GiveTheGoldenDecisionsWithAGateFromAnyState) {
  for (const std::string& name : golden::golden_names(golden::Beside::errors)) {
    const golden::GoldenRun run = golden::load_golden(name);
    if (run.options.lag == 0) continue;
    std::optional<Gated> gated(run);
    for (const golden::GoldenRow& row : run.rows) {
      const bool held = gated->run(row);
      ASSERT_EQ(gated->report(row, held), row.decision) << name << ", step " << row.step;  // early, for the state
      ExtraSections sections;
      add_plan(gated->controller, false, {}, sections);
      const std::string bytes = encode_state(gated->controller.save());
      const LoadedState loaded = decode_state(std::as_bytes(std::span(bytes)));
      Gated resumed(run);
      resumed.controller.restore(loaded.state, read_plan(sections, run.units).plan);
      ASSERT_EQ(resumed.controller.plan_state(), gated->controller.plan_state()) << name << ", step " << row.step;
      resumed.gate = HostGate(resumed.controller);
      gated.emplace(std::move(resumed));
    }
  }
}

TEST(GoldenErrors, GiveTheGoldenDecisions) {
  const std::vector<std::string> names = golden::golden_names(golden::Beside::errors);
  EXPECT_GE(names.size(), 5U);
  for (const std::string& name : names) {
    const golden::GoldenRun run = golden::load_golden(name);
    if (run.options.lag != 0) continue;
    Controller controller = golden_controller(run);
    for (const golden::GoldenRow& row : run.rows) {
      ASSERT_EQ(decide_with_errors(controller, row), row.decision) << name << ", step " << row.step;
    }
  }
}

TEST(GoldenErrors, GiveTheGoldenDecisionsFromAnyState) {
  for (const std::string& name : golden::golden_names(golden::Beside::errors)) {
    const golden::GoldenRun run = golden::load_golden(name);
    if (run.options.lag != 0) continue;
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
