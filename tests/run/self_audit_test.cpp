// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/self_audit.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gnmr::run {
namespace {

using Indices = std::vector<UnitIndex>;

/// A controller that goes by norms, of which only the options are asked for.
Controller by_norms(int lag = 0) {
  Options options;
  options.lag = lag;
  return Controller({{.name = "a"}, {.name = "b"}, {.name = "c"}}, options, norms_only());
}

/// What a decision of a step did with units.
struct Decided {
  Indices released = {};
  Indices futile = {};
  Indices standing = {};
};

void tell(SelfAudit& audit, const Controller& controller, std::int64_t step, const Decided& decided) {
  const Outcome outcome{
      .step = step,
      .decided_step = step,
      .decision = {.step = step, .futile = decided.futile, .released = decided.released, .standing = decided.standing}};
  const StepReport report{.step = step};
  const RunNotes notes;
  audit.reported({.controller = controller,
                  .report = report,
                  .outcome = outcome,
                  .notes = notes,
                  .plan = {.step = step, .batch = step, .in_force = true},
                  .is_decided = true});
}

TEST(SelfAudit, ConcludesWhereNoRecoveryHelped) {
  const Controller controller = by_norms();
  for (const bool one_helps : {false, true}) {
    SelfAudit audit(10);
    std::int64_t concluded = 0;
    for (std::int64_t step = 1; step <= 20 && concluded == 0; ++step) {
      const bool is_release = step % 3 == 0;
      const bool helps = one_helps && step == 9;
      tell(audit, controller, step,
           {.released = is_release ? Indices{1} : Indices{}, .futile = is_release && !helps ? Indices{1} : Indices{}});
      if (audit.take_conclusion()) concluded = step;
    }
    EXPECT_EQ(concluded, one_helps ? 19 : 10);
  }
}

TEST(SelfAudit, WithLagOneTheStepThatRunsMeanwhileStaysAsItIs) {
  const Controller controller = by_norms(1);
  SelfAudit audit(10);
  for (std::int64_t step = 1; step <= 10; ++step) {
    tell(audit, controller, step, {.released = {0}, .futile = {0}});
    EXPECT_FALSE(audit.take_conclusion());
    EXPECT_FALSE(audit.is_due(step + 1));
    EXPECT_EQ(audit.is_due(step + 2), step == 10);
  }
  EXPECT_EQ(audit.due_why(), audit.state().disarm_why);
  audit.clear();
  EXPECT_FALSE(audit.is_due(100));
}

TEST(SelfAudit, AStandingRecoveryCountsNeitherWay) {
  const Controller controller = by_norms();
  SelfAudit audit(10);
  for (std::int64_t step = 1; step <= 40; ++step) {
    // Unit 2 stands in odd steps and loses its place in even ones.
    tell(audit, controller, step,
         {.released = step % 2 == 0 ? Indices{2} : Indices{}, .standing = step % 2 == 1 ? Indices{2} : Indices{}});
    EXPECT_TRUE(audit.state().occasions.empty()) << step;
  }
  // Beside it an acute recovery counts as it would alone.
  tell(audit, controller, 41, {.standing = {2}});
  tell(audit, controller, 42, {.released = {1, 2}, .futile = {1}});
  ASSERT_EQ(audit.state().occasions.size(), 1u);
  EXPECT_EQ(audit.state().occasions.front(), (std::pair<std::int64_t, bool>(42, false)));
}

TEST(SelfAudit, GoesOnFromAState) {
  const Controller controller = by_norms();
  SelfAudit audit(10);
  for (std::int64_t step = 1; step <= 9; ++step) tell(audit, controller, step, {.released = {0}, .futile = {0}});
  SelfAudit resumed(10);
  resumed.restore(audit.state(), controller);
  tell(resumed, controller, 10, {});
  EXPECT_TRUE(resumed.take_conclusion());
}

}  // namespace
}  // namespace gnmr::run
