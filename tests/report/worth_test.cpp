// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/worth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gnmr::report {
namespace {

constexpr double kOverflow = std::numeric_limits<double>::infinity();

io::JournalTrial trial_of(const std::string& verdict, std::optional<double> distance = {}) {
  return {.verdict = verdict, .seconds = 0.5, .distance = distance};
}

TEST(Worth, OfOneRerun) {
  EXPECT_EQ(outcome_of(trial_of("numeric", 0.1)), RerunOutcome::helpful);
  EXPECT_EQ(outcome_of(trial_of("numeric", kOverflow)), RerunOutcome::helpful);
  EXPECT_EQ(outcome_of(trial_of("numeric", std::nan(""))), RerunOutcome::helpful);
  EXPECT_EQ(outcome_of(trial_of("numeric", 0.0999)), RerunOutcome::slight);
  EXPECT_EQ(outcome_of(trial_of("numeric")), RerunOutcome::unmeasured);
  EXPECT_EQ(outcome_of(trial_of("common", 5)), RerunOutcome::wasted);
  EXPECT_EQ(outcome_of(trial_of("unlocated", 5)), RerunOutcome::unlocated);
  EXPECT_EQ(outcome_of(trial_of("guilty")), RerunOutcome::other);
  io::JournalTrial replay = trial_of("none", 0.5);
  replay.rerun = "replay";
  EXPECT_EQ(outcome_of(replay), RerunOutcome::helpful);
}

TEST(Worth, OfARun) {
  io::Journal journal;
  EXPECT_NE(worth_text(rerun_worth(journal, nullptr)).find("was not measured"), std::string::npos);
  for (const char* const verdict : {"numeric", "numeric", "common", "unlocated"}) {
    io::JournalTrial trial = trial_of(verdict, 0.5);
    trial.applied = std::string(verdict) != "unlocated";
    journal.steps.push_back({.number = static_cast<std::int64_t>(journal.steps.size())});
    journal.steps.back().trials = {trial};
  }
  journal.steps[1].trials[0].seconds = std::nan("");
  run::Metrics metrics;
  metrics.train = {{.step = 0, .seconds = 10}, {.step = 1}, {.step = 2, .seconds = 5}};
  const RerunWorth worth = rerun_worth(journal, &metrics);
  EXPECT_EQ(worth.reruns, 4U);
  EXPECT_EQ(worth.helpful, 2U);
  EXPECT_EQ(worth.wasted, 1U);
  EXPECT_EQ(worth.unlocated, 1U);
  EXPECT_EQ(worth.not_applied, 1U);
  EXPECT_EQ(worth.seconds, 1.5);
  EXPECT_EQ(worth.step_seconds, 15.0);
  EXPECT_DOUBLE_EQ(worth.share.value(), 0.1);
  EXPECT_FALSE(rerun_worth(journal, nullptr).share.has_value());
}

TEST(Worth, TheUnitThatStandsOutMost) {
  io::JournalTrial trial{.units = {"a", "b", "c"}, .errors = {0.5, 0.1, 0.2}, .excesses = {1.5, 4, 2}};
  EXPECT_EQ(worst_unit(trial), 1U);
  EXPECT_EQ(error_text(trial), "0.1 (4 × limit)");
  trial.excesses.clear();
  EXPECT_EQ(error_text(trial), "0.5");
  trial.errors = {std::nan(""), 0.25};  // lists of a journal need not have one length
  EXPECT_EQ(error_text(trial), "0.25");
  EXPECT_EQ(error_text({}), "");
}

TEST(Worth, FewOfMany) {
  EXPECT_EQ(few_of({}), "");
  EXPECT_EQ(few_of({"a", "b", "a"}), "a, b");
  EXPECT_EQ(few_of({"a", "b", "c", "d", "e", "f"}), "a, b, c, d and 2 more");
}

}  // namespace
}  // namespace gnmr::report
