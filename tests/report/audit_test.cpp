// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/audit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gnmr::report {
namespace {

using io::JournalEventKind;

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// A run of twenty steps that is told line by line: unit `a` costs three times what `b` does.
class AuditOf : public ::testing::Test {
 protected:
  AuditOf() {
    run_.journal.emplace();
    io::JournalHeader header;
    header.units = {{.name = "a", .cost = 3}, {.name = "b", .cost = 1}};
    run_.journal->header = header;
    run_.metrics.emplace();
    for (std::int64_t number = 1; number <= 20; ++number) {
      run_.journal->steps.push_back({.number = number, .step = io::JournalStep{.step = number}});
      run_.metrics->train.push_back({.step = number, .seconds = 1.0, .recovered = {}});
    }
  }

  io::JournalStepEntry& step(std::int64_t number) {
    return run_.journal->steps.at(static_cast<std::size_t>(number) - 1);
  }
  run::TrainLine& point(std::int64_t number) { return run_.metrics->train.at(static_cast<std::size_t>(number) - 1); }
  void event(std::int64_t number, const std::string& unit, JournalEventKind kind) {
    step(number).events.push_back({.step = number, .unit = unit, .event = kind});
  }
  Audit audit() {
    run_.history = recovery_history(*run_.journal);
    return audit_run(run_);
  }

  /// Two units found by one trial, a trial that finds nobody, a recovery by norms, one that is open at the end.
  void tell() {
    point(4).seconds = 9;  // a hiccup, which a median does not mind
    step(10).trials = {{.step = 10,
                        .verdict = "numeric",
                        .units = {"b", "a"},
                        .errors = {0.1, 0.5},
                        .losses = {3.5, 2.5},
                        .seconds = 2,
                        .places = {"forward", "weight_gradient"},
                        .distance = 0.75}};
    point(10).seconds = 3;
    event(10, "a", JournalEventKind::admitted);
    event(10, "b", JournalEventKind::admitted);
    point(11).seconds = 1.4;
    point(12).seconds = 1.8;
    event(12, "b", JournalEventKind::released);
    point(13).seconds = 1.2;
    event(13, "a", JournalEventKind::released);
    step(14).trials = {{.step = 14, .verdict = "common", .losses = {9, 9}, .seconds = 0.5, .distance = 0.01}};
    point(14).seconds = 1.5;
    event(15, "b", JournalEventKind::admitted);
    point(16).seconds = 0.9;
    point(17).seconds = 0.7;
    event(17, "b", JournalEventKind::futile);
    event(17, "b", JournalEventKind::released);
    step(18).trials = {{.step = 18,
                        .verdict = "numeric",
                        .units = {"a"},
                        .errors = {kNoLimit},
                        .losses = {kNoLimit, 2},
                        .seconds = 0.25,
                        .places = {"forward"},
                        .distance = kNoLimit}};
    point(18).seconds = 1.25;
    event(18, "a", JournalEventKind::admitted);
    point(19).seconds = 2;
    point(20).seconds.reset();
  }

  RunFiles run_;
};

TEST_F(AuditOf, EachRecovery) {
  tell();
  const Audit audit = this->audit();
  ASSERT_EQ(audit.recoveries.size(), 4U);
  // Steps 11 and 12 took 0.4 and 0.8 s more, of which 3/4 is of `a`; step 13 took 0.2 s more, all of `a`.
  const RecoveryAudit& first = audit.recoveries[0];
  EXPECT_EQ(first.unit, "a");
  EXPECT_EQ(first.recovery.admitted_step, 10);
  EXPECT_EQ(first.recovery.first_step, 11);
  EXPECT_EQ(first.recovery.last_step, 13);
  EXPECT_EQ(first.verdict, "numeric");
  EXPECT_EQ(first.place, "weight_gradient");
  EXPECT_EQ(first.error, 0.5);
  EXPECT_EQ(first.outcome, RerunOutcome::helpful);
  EXPECT_EQ(first.loss, 3.5);
  EXPECT_EQ(first.rerun_loss, 2.5);
  EXPECT_EQ(first.distance, 0.75);
  EXPECT_EQ(first.rerun_seconds, 1.0) << "half of two seconds";
  EXPECT_NEAR(first.extra_seconds.value(), 0.3 + 0.6 + 0.2, 1e-12);
  const RecoveryAudit& second = audit.recoveries[1];
  EXPECT_EQ(second.unit, "b");
  EXPECT_EQ(second.place, "forward");
  EXPECT_EQ(second.rerun_seconds, 1.0);
  EXPECT_NEAR(second.extra_seconds.value(), 0.1 + 0.2, 1e-12);
  EXPECT_NEAR(second.seconds(), 1.3, 1e-12);
  // By its norm, in steps that took less than usual.
  const RecoveryAudit& third = audit.recoveries[2];
  EXPECT_EQ(third.verdict, "");
  EXPECT_FALSE(third.outcome.has_value());
  EXPECT_FALSE(third.distance.has_value());
  EXPECT_EQ(third.rerun_seconds, 0);
  EXPECT_NEAR(third.extra_seconds.value(), -0.1 - 0.3, 1e-12);
  EXPECT_EQ(third.recovery.end, RecoveryEnd::futile);
  // Of its two steps only one has a time.
  const RecoveryAudit& fourth = audit.recoveries[3];
  EXPECT_EQ(fourth.rerun_seconds, 0.25);
  EXPECT_NEAR(fourth.extra_seconds.value(), 1.0, 1e-12);
  EXPECT_EQ(fourth.recovery.end, RecoveryEnd::open);
}

TEST_F(AuditOf, TheSums) {
  tell();
  const Audit audit = this->audit();
  EXPECT_EQ(audit.rerun, 3U);
  EXPECT_EQ(audit.helpful, 3U);
  EXPECT_EQ(audit.slight, 0U);
  EXPECT_EQ(audit.losses, 1U) << "a rerun counts once, though it admitted two";
  EXPECT_EQ(audit.loss_difference, 1.0);
  EXPECT_EQ(audit.not_finite, 1U);
  EXPECT_EQ(audit.rerun_seconds, 2.25);
  EXPECT_EQ(audit.other_reruns, 1U);
  EXPECT_EQ(audit.other_seconds, 0.5);
  EXPECT_EQ(audit.timed, 4U);
  EXPECT_NEAR(audit.extra_seconds, 1.1 + 0.3 - 0.4 + 1.0, 1e-12);
  EXPECT_NEAR(audit.seconds(), 4.75, 1e-12);
  EXPECT_NEAR(audit.share.value(), 4.75 / 31.75, 1e-12);
  EXPECT_EQ(
      audit_text(audit),
      "4 recoveries. For 3 the step was run again: 3 helpful, 0 slight. The losses of 1 such step were together 1 "
      "above those of the reruns. In 1 step the loss was not finite, and that of the rerun was. Cost: 2.25 s in "
      "reruns that admitted units, 0.5 s in 1 that admitted none, about 2 s in high precision; together 4.75 s, "
      "15.0 % of the time in steps.");
  EXPECT_EQ(audit_text({}), "No unit was in recovery.");
}

TEST_F(AuditOf, RowsForPeople) {
  tell();
  const Audit audit = this->audit();
  const AuditRow row = audit_row(audit.recoveries[0]);
  EXPECT_EQ(row.steps, "11 to 13");
  EXPECT_EQ(row.worth, "helpful");
  EXPECT_EQ(row.error, "0.5");
  EXPECT_EQ(row.loss, "3.5 → 2.5");
  EXPECT_EQ(row.seconds, "2.1");
  const std::vector<std::string> lines = audit_lines(audit, audit.recoveries);
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines[0],
            "  steps     unit          verdict        place            worth         end            loss  "
            "distance  rerun s  high s");
  EXPECT_EQ(lines[1],
            "  11 to 13  a             numeric        weight_gradient  helpful       released  3.5 → 2.5  "
            "    0.75        1     1.1");
  EXPECT_EQ(lines[3],
            "  16 to 17  b             not run again  –                not measured  futile            –  "
            "       –        –    -0.4");
  EXPECT_EQ(lines[4],
            "  19 on     a             numeric        forward          helpful       open          ∞ → 2  "
            "       ∞     0.25       1");
  EXPECT_EQ(lines[5],
            "  sum       4 recoveries                                  3 helpful                             "
            "          2.25       2");
  EXPECT_TRUE(audit_lines({}, {}).empty());
}

TEST_F(AuditOf, WhatIsNotKnownIsNotGuessed) {
  tell();
  // Decisions were not carried out in steps 11 to 13: nobody was in recovery.
  for (std::int64_t number = 11; number <= 13; ++number) point(number).recovered = 0;
  point(16).recovered = point(17).recovered = 1;
  Audit audit = this->audit();
  EXPECT_FALSE(audit.recoveries[0].extra_seconds.has_value());
  EXPECT_FALSE(audit.recoveries[1].extra_seconds.has_value());
  EXPECT_NEAR(audit.recoveries[2].extra_seconds.value(), -0.4, 1e-12);
  EXPECT_EQ(audit.timed, 2U);
  EXPECT_NE(audit_text(audit).find("(known of 2 recoveries)"), std::string::npos);
  // Too few steps to say what is usual.
  run_.metrics->train.erase(run_.metrics->train.begin(), run_.metrics->train.begin() + 6);
  for (run::TrainLine& point : run_.metrics->train) point.recovered.reset();
  audit = this->audit();
  EXPECT_FALSE(audit.recoveries[0].extra_seconds.has_value());
  EXPECT_TRUE(audit.recoveries[2].extra_seconds.has_value()) << "by then there are six";
  run_.metrics.reset();
  audit = this->audit();
  EXPECT_EQ(audit.timed, 0U);
  EXPECT_EQ(audit.seconds(), 2.75);
  EXPECT_FALSE(audit.share.has_value());
  EXPECT_NE(audit_text(audit).find("what high precision took is not known; together 2.75 s."), std::string::npos);
}

TEST_F(AuditOf, AWatchedRunHasNothingToAudit) {
  tell();
  run_.journal->modes = {{.mode = Mode::watch, .why = "dry run"}};
  EXPECT_TRUE(audit().recoveries.empty());
  EXPECT_EQ(audit().seconds(), 0);
}

TEST_F(AuditOf, TheCostliestStayInTheirOrder) {
  tell();
  const Audit audit = this->audit();
  const std::vector<RecoveryAudit> two = costliest(audit.recoveries, 2);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0].recovery.first_step, 11);
  EXPECT_EQ(two[0].unit, "a");
  EXPECT_EQ(two[1].unit, "b") << "1.3 s, more than the 1.25 s of the last";
  EXPECT_EQ(costliest(audit.recoveries, 0).size(), 4U);
}

}  // namespace
}  // namespace gnmr::report
