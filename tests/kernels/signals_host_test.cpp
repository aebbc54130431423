// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/signals_host.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "io/golden_run.h"
#include "kernels/judged_run.h"

namespace gnmr::kernels {
namespace {

using testing::JudgedRun;
using testing::WatchedStep;

TEST(HostSignals, FindsWhatTheCoreFindsInRandomRuns) {
  std::size_t reruns = 0;
  std::size_t held = 0;
  std::size_t calm = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    JudgedRun run(seed);
    HostSignals signals(run.units(), run.settings());
    for (int i = 0; i < 120; ++i) {
      const WatchedStep& step = run.next();
      signals.set_flags(step.flags);
      const StepAlarm& alarm = signals.observe(step.inputs(), step.hold);
      ASSERT_EQ(testing::difference(step, alarm, signals.risks(), signals.severities()), "")
          << "seed " << seed << ", observation " << i;
      reruns += step.is_rerun ? 1 : 0;
      held += !step.is_rerun && step.held ? 1 : 0;
      calm += !step.is_rerun && !step.held ? 1 : 0;
      if (!run.has_ended()) continue;
      const std::uint32_t window = run.settings().window;
      ASSERT_EQ(testing::turned(signals.memory(), window), testing::turned(run.memory(), window))
          << "seed " << seed << ", observation " << i;
    }
  }
  EXPECT_GT(reruns, 300u);
  EXPECT_GT(held, reruns);
  EXPECT_GT(calm, 5000u);
}

TEST(HostSignals, GoesOnFromTheMemoryOfTheCore) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    JudgedRun run(seed);
    for (int i = 0; i < 60 || !run.has_ended(); ++i) run.next();
    HostSignals signals(run.units(), run.settings());
    signals.load(run.memory());
    for (int i = 0; i < 60; ++i) {
      const WatchedStep& step = run.next();
      signals.set_flags(step.flags);
      ASSERT_EQ(
          testing::difference(step, signals.observe(step.inputs(), step.hold), signals.risks(), signals.severities()),
          "")
          << "seed " << seed << ", observation " << i;
    }
  }
}

TEST(HostSignals, FindsTheRisksOfTheGoldenTraces) {
  for (const std::string& name : io::golden::golden_names()) {
    const io::golden::GoldenRun run = io::golden::load_golden(name);
    Controller controller = gnmr::testing::norms_controller(run.units, run.options);
    const auto units = static_cast<std::uint32_t>(run.units.size());
    const SignalSettings settings = testing::settings_of(run.options, Selector::norms);
    HostSignals signals(units, settings);
    for (const io::golden::GoldenRow& row : run.rows) {
      signals.set_flags(testing::flags_of(controller));
      const StepAlarm& alarm =
          signals.observe({.norms = row.norms.data(), .sampled = row.sampled.data()}, HoldRule::never);
      const Outcome& outcome =
          gnmr::testing::run_step(controller, {.step = row.step, .norms = row.norms, .sampled = row.sampled});
      const gnmr::Alarm& expected = outcome.alarm;
      ASSERT_EQ(alarm.centre, expected.centre) << name << ", step " << row.step;
      ASSERT_EQ(alarm.common != 0, expected.common) << name << ", step " << row.step;
      std::vector<UnitIndex> risks;
      for (UnitIndex unit = 0; unit < units; ++unit) {
        if (signals.risks()[unit] == RiskKind::none) continue;
        risks.push_back(unit);
        ASSERT_EQ(signals.severities()[unit], controller.signals(unit).severity) << name << ", step " << row.step;
        ASSERT_EQ(signals.risks()[unit], controller.signals(unit).risk);
      }
      ASSERT_EQ(risks, std::vector<UnitIndex>(expected.risks.begin(), expected.risks.end()))
          << name << ", step " << row.step;
      // Candidates before the decision are those that it admits or denies, but for units released in it.
      const Decision& decision = outcome.decision;
      if (decision.released.empty()) {
        ASSERT_EQ(has_candidates(settings.alarm, alarm.counts), !decision.admitted.empty() || !decision.denied.empty())
            << name << ", step " << row.step;
      }
      ASSERT_EQ(testing::turned(signals.memory(), settings.window),
                testing::turned(memory_of(controller.save(), settings), settings.window))
          << name << ", step " << row.step;
    }
  }
}

TEST(HostSignals, WantsAWindow) { EXPECT_THROW(HostSignals(3, {.rules = {}, .window = 0}), Error); }

}  // namespace
}  // namespace gnmr::kernels
