// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/recoveries.h"

#include <gtest/gtest.h>

namespace gnmr::report {
namespace {

using io::JournalEventKind;

class Recoveries : public ::testing::Test {
 protected:
  Recoveries() {
    io::JournalHeader header;
    header.units = {{.name = "a"}, {.name = "b"}};
    header.options.max_o = 1;
    journal_.header = header;
  }
  void step(std::int64_t number, std::uint64_t recovered,
            const std::vector<std::pair<std::string, JournalEventKind>>& events) {
    io::JournalStepEntry entry{.number = number};
    entry.step = io::JournalStep{.step = number, .recovered = recovered};
    for (const auto& [unit, kind] : events) {
      entry.events.push_back({.step = number, .unit = unit, .event = kind, .ratio = 9.0, .severity = 4.0});
    }
    journal_.steps.push_back(entry);
  }
  io::Journal journal_;
};

TEST_F(Recoveries, FromTheStepAfterAdmissionToTheStepOfTheRelease) {
  step(10, 1, {{"b", JournalEventKind::risk}, {"b", JournalEventKind::admitted}, {"a", JournalEventKind::denied}});
  step(11, 1, {});
  step(12, 0, {{"b", JournalEventKind::released}});
  const RecoveryHistory history = recovery_history(journal_);
  ASSERT_EQ(history.recoveries.size(), 1U);
  EXPECT_EQ(history.recoveries[0].unit, 1U);
  EXPECT_EQ(history.recoveries[0].first_step, 11);
  EXPECT_EQ(history.recoveries[0].last_step, 12);
  EXPECT_EQ(history.recoveries[0].end, RecoveryEnd::released);
  ASSERT_EQ(history.denials.size(), 1U);
  EXPECT_EQ(history.denials[0].step, 10);
  EXPECT_EQ(history.budget, 1U);
  ASSERT_EQ(history.in_use.size(), 3U);
  EXPECT_EQ(history.in_use[0].step, 11);
  EXPECT_EQ(history.in_use[0].units, 1U);
  ASSERT_EQ(history.events.size(), 3U);
  EXPECT_EQ(history.events[0].what, "risk, admitted");
}

TEST_F(Recoveries, LagMovesThemByAStep) {
  journal_.header->options.lag = 1;
  step(10, 1, {{"b", JournalEventKind::admitted}});
  step(12, 0, {{"b", JournalEventKind::released}});
  const RecoveryHistory history = recovery_history(journal_);
  EXPECT_EQ(history.recoveries.at(0).first_step, 12);
  EXPECT_EQ(history.recoveries.at(0).last_step, 13);
  EXPECT_EQ(history.in_use.at(0).step, 12);
}

TEST_F(Recoveries, StandingOnesAreRecoveriesTooAndMayGiveTheirPlaceToAcuteOnes) {
  step(40, 1, {{"a", JournalEventKind::standing}});
  step(50, 1, {{"b", JournalEventKind::risk}, {"b", JournalEventKind::admitted}, {"a", JournalEventKind::released}});
  step(60, 1, {{"b", JournalEventKind::released}, {"a", JournalEventKind::standing}});
  const RecoveryHistory history = recovery_history(journal_);
  ASSERT_EQ(history.recoveries.size(), 3U);
  EXPECT_TRUE(history.recoveries[0].standing && !history.recoveries[1].standing && history.recoveries[2].standing);
  EXPECT_EQ(history.recoveries[0].first_step, 41);
  EXPECT_EQ(history.recoveries[0].last_step, 50);
  EXPECT_EQ(history.recoveries[2].end, RecoveryEnd::open);
  EXPECT_EQ(history.events[0].what, "standing");
}

TEST_F(Recoveries, FutileOpenAndThoseThatBeganBeforeTheJournal) {
  step(5, 1, {{"a", JournalEventKind::futile}, {"a", JournalEventKind::released}});
  step(6, 1, {{"b", JournalEventKind::admitted}});
  step(9, 1, {});
  const RecoveryHistory history = recovery_history(journal_);
  ASSERT_EQ(history.recoveries.size(), 2U);
  EXPECT_EQ(history.recoveries[0].first_step, 5);
  EXPECT_EQ(history.recoveries[0].end, RecoveryEnd::futile);
  EXPECT_FALSE(history.recoveries[0].admitted_step.has_value());
  EXPECT_EQ(history.recoveries[1].last_step, 9);
  EXPECT_EQ(history.recoveries[1].end, RecoveryEnd::open);
}

// A decision releases before it admits; in the journal the line of the admission stands first.
TEST_F(Recoveries, ReleasedAndAdmittedAgainInOneStep) {
  step(10, 1, {{"b", JournalEventKind::admitted}});
  step(15, 1, {{"b", JournalEventKind::admitted}, {"b", JournalEventKind::released}});
  step(20, 0, {{"b", JournalEventKind::released}});
  const RecoveryHistory history = recovery_history(journal_);
  ASSERT_EQ(history.recoveries.size(), 2U);
  EXPECT_EQ(history.recoveries[0].admitted_step, 10);
  EXPECT_EQ(history.recoveries[0].first_step, 11);
  EXPECT_EQ(history.recoveries[0].last_step, 15);
  EXPECT_EQ(history.recoveries[1].admitted_step, 15);
  EXPECT_EQ(history.recoveries[1].first_step, 16);
  EXPECT_EQ(history.recoveries[1].last_step, 20);
}

TEST_F(Recoveries, UnitsThatTheHeaderDoesNotKnow) {
  step(1, 1, {{"new", JournalEventKind::admitted}});
  const RecoveryHistory history = recovery_history(journal_);
  EXPECT_EQ(history.units, (std::vector<std::string>{"a", "b", "new"}));
  EXPECT_EQ(history.recoveries.at(0).unit, 2U);
  EXPECT_TRUE(recovery_history(io::Journal{}).recoveries.empty());
}

}  // namespace
}  // namespace gnmr::report
