// SPDX-License-Identifier: Apache-2.0
// A supervisor with a gate: plans, held steps, the journal, going on from any step.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/io/journal_reader.h"
#include "gnmr/run/supervisor.h"
#include "io/temporary_folder.h"

namespace gnmr::run {
namespace {

/// What a plan says of its run.
struct RunPlan {
  std::int64_t step = 0;
  std::int64_t batch = 0;
  PassKind pass = PassKind::step;
  bool again = false;
  HoldRule hold = HoldRule::never;
  bool operator==(const RunPlan&) const = default;
};

constexpr UnitIndex kGatedUnits = 6;

std::vector<Unit> gated_units() {
  std::vector<Unit> all;
  for (UnitIndex unit = 0; unit < kGatedUnits; ++unit) all.push_back({.name = "unit" + std::to_string(unit)});
  return all;
}

SupervisorSettings settings() {
  SupervisorSettings settings;
  settings.options.warmup_samples = 3;
  settings.options.lock_steps = 4;
  settings.options.max_o = 3;
  settings.options.common_share = 1;
  settings.options.lag = 1;
  settings.backend = {.can_rerun = true, .expected_errors = {0.01}};
  return settings;
}

/// A run whose batches have errors, the same in every run of a batch: a gate that closes where a norm is far off.
class LateRun {
 public:
  explicit LateRun(const SupervisorSettings& given, const SupervisorFiles& files = {})
      : supervisor(gated_units(), given, files) {}

  struct Line {
    RunPlan plan;
    bool held = false;
    std::vector<UnitIndex> high = {};
    std::vector<UnitIndex> decided = {};
    Action action = Action::apply;
    PassKind rerun = PassKind::step;
    bool operator==(const Line&) const = default;
  };

  void begin(std::int64_t step) {
    const StepPlan& plan = supervisor.begin(step);
    Line line{.plan = {plan.step, plan.batch, plan.pass, plan.again, plan.hold}};
    const auto high = supervisor.high();
    line.high.assign(high.begin(), high.end());
    const std::vector<double> values = norms(line);
    for (std::size_t unit = 0; unit < kGatedUnits && line.plan.hold == HoldRule::for_trial; ++unit) {
      line.held = line.held || (values[unit] > 10 && (plan.gate_flags[unit] & gate_flag::kFree) != 0);
    }
    waiting.push_back(line);
  }

  void settle() {
    Line line = waiting.front();
    waiting.erase(waiting.begin());
    const std::vector<double> values = norms(line);
    std::vector<double> errors(kGatedUnits, 0.01);
    if (line.plan.pass == PassKind::trial && is_bad(line.plan.batch)) errors[bad_unit(line.plan.batch)] = 3;
    if (patrol_finds(line)) errors[1] = 3;
    RunNotes notes;
    if (line.plan.pass != PassKind::step) notes.rerun = RerunContext{.loss = 1, .norm = 1, .seconds = 0.1};
    const Outcome& outcome =
        supervisor.report({.step = line.plan.step, .norms = values, .errors = errors, .held = line.held}, notes);
    line.decided.assign(outcome.decision.recovered.begin(), outcome.decision.recovered.end());
    line.action = outcome.action;
    line.rerun = outcome.rerun;
    lines.push_back(line);
  }

  void run(std::int64_t first, std::int64_t last) {
    for (std::int64_t step = first; step <= last; ++step) {
      begin(step);
      if (waiting.size() > 1) settle();
    }
  }

  /// Everything is settled, as for a checkpoint.
  std::string save() {
    if (!waiting.empty()) settle();
    return supervisor.save();
  }

  Supervisor supervisor;
  std::vector<Line> waiting;
  std::vector<Line> lines;

 private:
  static bool is_bad(std::int64_t batch) { return batch > 5 && batch % 7 == 0; }
  static UnitIndex bad_unit(std::int64_t batch) { return static_cast<UnitIndex>(batch) % kGatedUnits; }
  static bool patrol_finds(const Line& line) { return line.plan.pass == PassKind::step && line.plan.batch == 17; }

  /// High in one unit where the batch is bad and that unit runs low.
  static std::vector<double> norms(const Line& line) {
    std::vector<double> values(kGatedUnits, 1.0);
    const UnitIndex unit = bad_unit(line.plan.batch);
    const bool high = std::find(line.high.begin(), line.high.end(), unit) != line.high.end();
    if (is_bad(line.plan.batch) && line.plan.pass == PassKind::step && !high) values[unit] = 40;
    return values;
  }
};

TEST(GatedSupervisor, AHeldBatchComesAgainAsATrialAndItsUnitGoesToRecovery) {
  const test::TemporaryFolder folder;
  LateRun run(settings(), {.journal = folder.file("j")});
  run.run(1, 12);
  run.save();
  EXPECT_TRUE(run.supervisor.close());
  ASSERT_EQ(run.lines.size(), 12u);
  EXPECT_TRUE(run.lines[6].held);
  EXPECT_EQ(run.lines[6].action, Action::rerun);
  EXPECT_EQ(run.lines[6].rerun, PassKind::trial);
  EXPECT_TRUE(run.lines[6].decided.empty());
  EXPECT_EQ(run.lines[7].plan.batch, 8) << "it was running when the host heard of step 7";
  EXPECT_EQ(run.lines[8].plan, (RunPlan{.step = 9, .batch = 7, .pass = PassKind::trial, .again = true}));
  EXPECT_EQ(run.lines[8].decided, (std::vector<UnitIndex>{1}));
  EXPECT_EQ(run.lines[9].plan.batch, 9);
  EXPECT_TRUE(run.lines[9].high.empty());
  EXPECT_EQ(run.lines[10].high, (std::vector<UnitIndex>{1})) << "the decision of 9 holds in 11";
  const io::Journal journal = io::read_journal(folder.file("j"));
  ASSERT_EQ(journal.steps.size(), 12u);
  EXPECT_EQ(journal.steps[6].step->alarm, "held");
  ASSERT_EQ(journal.steps[8].trials.size(), 1u);
  EXPECT_EQ(journal.steps[8].trials[0].verdict, "numeric");
  EXPECT_EQ(journal.steps[8].trials[0].why, "step 7, norms: 1 at risk, most of all unit1");
}

TEST(GatedSupervisor, APatrolCallsATrialOfABatchThatIsNotRunningYet) {
  LateRun run(settings());
  run.run(1, 40);
  const auto found = std::find_if(run.lines.begin(), run.lines.end(),
                                  [](const auto& line) { return line.plan.batch == 17 && !line.plan.again; });
  ASSERT_NE(found, run.lines.end());
  EXPECT_FALSE(found->held);
  EXPECT_TRUE((found + 1)->plan.pass == PassKind::step);
  EXPECT_TRUE((found + 2)->plan.pass == PassKind::trial);
  EXPECT_FALSE((found + 2)->plan.again);
}

TEST(GatedSupervisor, GoesOnFromAnyStepAsIfUnbroken) {
  SupervisorSettings given = settings();
  given.disarm_after = 30;
  LateRun unbroken(given);
  unbroken.run(1, 60);
  const std::string end = unbroken.save();
  int waited = 0;
  for (std::int64_t done = 0; done < 60; ++done) {
    LateRun first(given);
    first.run(1, done);
    const std::string saved = first.save();
    LateRun rest(given);
    EXPECT_TRUE(rest.supervisor.restore(saved).exact());
    EXPECT_EQ(rest.supervisor.save(), saved);
    waited += saved.find(R"("pass":"trial")") != std::string::npos ? 1 : 0;
    rest.run(done + 1, 60);
    EXPECT_EQ(rest.save(), end) << "after " << done;
    first.lines.insert(first.lines.end(), rest.lines.begin(), rest.lines.end());
    EXPECT_EQ(first.lines, unbroken.lines) << "after " << done;
  }
  EXPECT_GT(waited, 5) << "some had a batch in the queue";
  LateRun other(given);
  EXPECT_THROW(other.supervisor.restore("nonsense"), Error);
}

TEST(GatedSupervisor, WatchingHoldsAndCallsNothing) {
  SupervisorSettings given = settings();
  given.switches = false;
  LateRun run(given);
  run.run(1, 40);
  for (const auto& line : run.lines) {
    EXPECT_EQ(line.plan, (RunPlan{.step = line.plan.step, .batch = line.plan.step}));
    EXPECT_FALSE(line.held);
    EXPECT_TRUE(line.high.empty());
  }
  EXPECT_TRUE(std::any_of(run.lines.begin(), run.lines.end(), [](const auto& line) { return !line.decided.empty(); }));
}

TEST(GatedSupervisor, TheKillSwitchHoldsFromTheNextStepAndIsToldAfterTheLast) {
  const test::TemporaryFolder folder;
  LateRun run(settings(), {.journal = folder.file("j")});
  run.run(1, 8);  // batch 7 is held
  run.supervisor.set_mode(Mode::watch, "a test");
  run.run(9, 12);
  run.supervisor.set_mode(Mode::high, "a test");
  run.run(13, 14);
  run.save();
  EXPECT_TRUE(run.supervisor.close());
  EXPECT_EQ(run.lines[8].plan, (RunPlan{.step = 9, .batch = 7, .again = true})) << "a plain step: nothing is switched";
  EXPECT_EQ(run.lines[12].high.size(), kGatedUnits);
  const io::Journal journal = io::read_journal(folder.file("j"));
  ASSERT_EQ(journal.modes.size(), 2u);
  EXPECT_EQ(journal.modes[0].after_step, 8);
  EXPECT_EQ(journal.modes[1].after_step, 12);
}

TEST(GatedSupervisor, WithoutAGateWhatWaitsComesFirst) {
  LateRun late(settings());
  late.run(1, 7);
  const std::string saved = late.save();  // batch 7 waits, batch 8 is planned
  SupervisorSettings plain = settings();
  plain.options.lag = 0;
  Supervisor supervisor(gated_units(), plain, {});
  supervisor.restore(saved);
  EXPECT_EQ(supervisor.begin(8).batch, 8);
  EXPECT_EQ(supervisor.begin(9).batch, 7);
  const std::string again = supervisor.save();
  Supervisor more(gated_units(), plain, {});
  more.restore(again);
  EXPECT_EQ(more.begin(10).batch, 9);
  EXPECT_EQ(more.begin(11).batch, 10);
  more.begin(12);
}

TEST(GatedSupervisor, RefusesGuardsThatNeedTheHost) {
  SupervisorSettings given = settings();
  given.options.guard = Guard::clip;
  EXPECT_THROW(Supervisor(gated_units(), given, {}), Error);
}

}  // namespace
}  // namespace gnmr::run
