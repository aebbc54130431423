// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/story.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/temporary_folder.h"
#include "report/sample_run.h"

namespace gnmr::report {
namespace {

using io::JournalEventKind;

/// A run that is told line by line.
class StoryOf : public ::testing::Test {
 protected:
  StoryOf() {
    run_.journal.emplace();
    io::JournalHeader header;
    header.units = {{.name = "a"}, {.name = "b"}, {.name = "c.down"}};
    header.options.max_o = 1;
    header.options.lock_steps = 5;
    run_.journal->header = header;
  }
  io::JournalStepEntry& step(std::int64_t number, std::uint64_t risks = 0, bool common = false) {
    io::JournalStepEntry entry{.number = number};
    entry.step = io::JournalStep{.step = number, .sampled = 3, .risks = risks, .common = common};
    run_.journal->steps.push_back(entry);
    return run_.journal->steps.back();
  }
  static io::JournalEvent event(std::int64_t number, const std::string& unit, JournalEventKind kind,
                                std::optional<double> severity = 4.0, std::uint64_t left = 5) {
    return {.step = number,
            .unit = unit,
            .event = kind,
            .ratio = 9.0,
            .delta = 8.0,
            .fall = -0.5,
            .severity = severity,
            .left = left};
  }
  Story tell(const StorySettings& settings = {}) {
    run_.history = recovery_history(*run_.journal);
    return make_story(run_, settings);
  }
  static std::string text_of(const Story& story) {
    std::string text;
    for (const std::string& line : summary_lines(story.summary)) text += line + "\n";
    for (const Episode& episode : story.episodes) {
      for (const std::string& line : episode_lines(episode, story.summary)) text += line + "\n";
    }
    return text;
  }
  static void expect_all(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\nin:\n" << text;
  }
  RunFiles run_;
};

TEST_F(StoryOf, CountsAlarmsWithoutARerun) {
  step(1, 1).step->alarm = "dismissed";
  step(2, 2).step->alarm = "dismissed";
  step(3, 1).step->alarm = "spent";
  step(4, 1);
  step(5, 1).step->capped = true;
  const Story story = tell();
  EXPECT_EQ(story.summary.alarms.dismissed, 2U);
  EXPECT_EQ(story.summary.alarms.spent, 1U);
  EXPECT_EQ(story.summary.alarms.capped, 1U);
  expect_all(text_of(story),
             {"2 answered by the patrol", "1 without a rerun (max_trials, max_high_share, or no free place)",
              "in 1 step max_high_share denied something"});
}

TEST_F(StoryOf, AnAdmissionWithItsReleaseAndRelapse) {
  step(10, 2).events = {event(10, "a", JournalEventKind::risk), event(10, "a", JournalEventKind::admitted),
                        event(10, "b", JournalEventKind::denied, 2.0, 0)};
  step(11);
  step(15).events = {event(15, "a", JournalEventKind::released, 0.1, 0)};
  step(17, 1).events = {event(17, "a", JournalEventKind::risk), event(17, "a", JournalEventKind::admitted, 4.0, 10)};
  step(27).events = {event(27, "a", JournalEventKind::futile, 4.0, 0),
                     event(27, "a", JournalEventKind::released, 4, 0)};
  const Story story = tell();
  ASSERT_EQ(story.episodes.size(), 2U);
  EXPECT_EQ(story.episodes[0].admitted.at(0).recovery.first_step, 11);
  EXPECT_EQ(story.episodes[0].admitted.at(0).recovery.last_step, 15);
  EXPECT_FALSE(story.episodes[0].admitted.at(0).by_error);
  EXPECT_TRUE(story.episodes[1].admitted.at(0).relapse);
  EXPECT_EQ(story.episodes[1].admitted.at(0).released_before, 15);
  EXPECT_EQ(story.summary.recoveries.all, 2U);
  EXPECT_EQ(story.summary.recoveries.relapses, 1U);
  EXPECT_EQ(story.summary.recoveries.futile, 1U);
  EXPECT_EQ(story.summary.alarms.steps, 2U);
  EXPECT_EQ(story.summary.alarms.risks, 3U);
  expect_all(text_of(story), {"step 10: recovery of one unit, not run again",
                              "norms: a 9 times its mean (rise 8, fall -0.5, severity 4); 2 units at risk",
                              "a by its norm: was in high precision from step 11 to 15, then released\n",
                              "denied for want of room: b\n",
                              "a by its norm: was in high precision from step 18 to 27, then released as bad as before "
                              "(futile); a relapse, locked for 10 steps (released in step 15)",
                              "5 (10 to 27)", "2 (0 by error, 2 by norm; 1 futile, 1 relapse, 0 open at the end)"});
}

TEST_F(StoryOf, ATrialTellsItsVerdictFirst) {
  io::JournalStepEntry& numeric = step(7);
  numeric.trials = {{.step = 7,
                     .verdict = "numeric",
                     .units = {"b", "a"},
                     .errors = {0.1, 0.5},
                     .losses = {3.5, 2.5},
                     .seconds = 0.25,
                     .places = {"forward", "weight_gradient"},
                     .excesses = {1.25, 4},
                     .distance = 0.75,
                     .norms = {8, 2},
                     .applied = true}};
  numeric.events = {event(7, "a", JournalEventKind::admitted, 0.5)};
  step(8).trials = {{.step = 8, .verdict = "common", .seconds = 0.25}};
  step(9).trials = {{.step = 9, .verdict = "unlocated", .seconds = 0.25, .rank = 3, .applied = false}};
  step(10).trials = {{.step = 10, .verdict = "none", .seconds = 0.25, .rerun = "replay", .distance = 0.01}};
  const Story story = tell();
  ASSERT_EQ(story.episodes.size(), 4U);
  EXPECT_TRUE(story.episodes[0].admitted.at(0).by_error);
  EXPECT_EQ(story.summary.worth.helpful, 1U);
  expect_all(
      text_of(story),
      {"step 7: numeric: a, weight_gradient: error 0.5, 4 times its limit of 0.125; 1 more outlier",
       "rerun: loss 3.5, in the rerun 2.5; gradients at least 0.75 apart; their norms 8 and 2; 0.25 s; the "
       "rerun's gradient made the update; helpful",
       "a by its error: was in high precision from step 8, still so at the end",
       "step 8: common: ", "a fault that does not repeat, on rank 3", "there was no update; unlocated",
       "step 10: replay: ", "4: 1 numeric, 1 common, 1 unlocated, 1 replay", "4 steps were run again (1 replay)"});
}

TEST_F(StoryOf, EachRecoveryWithItsWorthAndCost) {
  step(7).trials = {{.step = 7,
                     .verdict = "numeric",
                     .units = {"a"},
                     .errors = {0.5},
                     .losses = {3.5, 2.5},
                     .seconds = 0.25,
                     .places = {"forward"},
                     .distance = 0.75}};
  run_.journal->steps.back().events = {event(7, "a", JournalEventKind::admitted, 0.5)};
  step(9).events = {event(9, "a", JournalEventKind::released, 0.1, 0), event(9, "c.down", JournalEventKind::admitted)};
  const Story story = tell();
  EXPECT_EQ(story.recovery_count, 2U);
  std::string text;
  for (const std::string& line : recovery_lines(story)) text += line + "\n";
  expect_all(text, {"8 to 9  a             numeric        forward", "3.5 → 2.5", "10 on   c.down        not run again",
                    "sum     2 recoveries", "together 0.25 s.", "is estimated"});
  const nlohmann::json json = nlohmann::json::parse(story_json(story));
  EXPECT_EQ(json["audit"]["recoveries"], 2);
  EXPECT_EQ(json["audit"]["rerun_seconds"], 0.25);
  EXPECT_EQ(json["audit"]["loss_difference"], 1.0);
  EXPECT_FALSE(json["audit"].contains("high_seconds"));
  ASSERT_EQ(json["recoveries"].size(), 2U);
  EXPECT_EQ(json["recoveries"][0]["admitted_step"], 7);
  EXPECT_EQ(json["recoveries"][0]["distance"], 0.75);
  EXPECT_EQ(json["recoveries"][0]["outcome"], "helpful");
  EXPECT_FALSE(json["recoveries"][1].contains("outcome"));
  // Told are those that were asked for; the sums stay those of the run.
  EXPECT_EQ(tell({.unit_glob = "c.*"}).recoveries.at(0).unit, "c.down");
  EXPECT_EQ(tell({.from_step = 10}).recovery_count, 1U);
  EXPECT_EQ(tell({.to_step = 8}).recovery_count, 1U);
  const Story one = tell({.limit = 1});
  ASSERT_EQ(one.recoveries.size(), 1U);
  EXPECT_EQ(one.recoveries[0].unit, "a") << "it cost something";
  EXPECT_EQ(one.audit.recoveries.size(), 2U);
}

TEST_F(StoryOf, CommonStepsAndDenialsThatFollowEachOtherAreOneEpisode) {
  step(1, 3, true).events = {event(1, "a", JournalEventKind::risk)};
  step(2, 2, true).events = {event(2, "b", JournalEventKind::risk, 7.0)};
  step(3, 1).events = {event(3, "b", JournalEventKind::denied)};
  step(4, 1).events = {event(4, "b", JournalEventKind::denied), event(4, "a", JournalEventKind::denied)};
  step(5);
  auto& sixth = step(6, 1);
  sixth.events = {event(6, "b", JournalEventKind::denied)};
  sixth.step->denied = 40;  // only the most severe ones have events
  const Story story = tell();
  ASSERT_EQ(story.episodes.size(), 3U);
  EXPECT_EQ(story.episodes[0].kind, EpisodeKind::common);
  EXPECT_EQ(story.episodes[0].last_step, 2);
  EXPECT_EQ(story.episodes[0].worst_risk->unit, "b");
  EXPECT_EQ(story.episodes[1].denied_count, 3U);
  EXPECT_EQ(story.episodes[1].denied, (std::vector<std::string>{"b", "a"}));
  expect_all(text_of(story), {"steps 1 to 2: common: ", "steps 3 to 4: denied: b, a (3 times); no room in the budget",
                              "step 6: denied: b (40 times); no room"});
  EXPECT_EQ(story.episodes[2].denied_count, 40U);
  EXPECT_EQ(story.summary.denials, 43U);
}

TEST_F(StoryOf, ModesResumesNotesAndDroppedLines) {
  step(1);
  step(2).events = {event(2, "a", JournalEventKind::admitted)};
  io::Journal& journal = *run_.journal;
  journal.modes = {{.mode = Mode::watch, .why = "dry run"}, {.mode = Mode::high, .why = "by hand", .after_step = 2}};
  journal.resumes = {{.step = 2}};
  journal.notes = {{.dropped = 7, .text = "lines could not be written", .after_step = 1}};
  journal.dropped = 7;
  journal.torn = true;
  const Story story = tell();
  ASSERT_EQ(story.episodes.size(), 5U);
  const std::string text = text_of(story);
  expect_all(text, {"at the start: Decisions are only written (watch): dry run", "step 1: 7 lines could not be written",
                    "step 2: resumed from a saved state", "step 2: Everything runs in high precision: by hand",
                    "high at the end, changed 1 time", "resumed 1 time", "7 lines could not be written", "torn"});
  EXPECT_LT(text.find("resumed from"), text.find("recovery of one unit"));
  EXPECT_LT(text.find("recovery of one unit"), text.find("Everything runs"));
}

TEST_F(StoryOf, TheWeightiestStayAndTheOrderIsThatOfSteps) {
  for (std::int64_t number = 1; number <= 300; number += 3) {
    step(number, 1).events = {event(number, "a", JournalEventKind::denied, 2.0)};
    step(number + 1);
  }
  step(400, 1).events = {event(400, "b", JournalEventKind::risk, 3.0),
                         event(400, "b", JournalEventKind::admitted, 3.0)};
  step(401).trials = {{.step = 401, .verdict = "numeric", .units = {"c.down"}, .errors = {1.0}}};
  const Story story = tell({.limit = 3});
  EXPECT_EQ(story.episode_count, 102U);
  ASSERT_EQ(story.episodes.size(), 3U);
  EXPECT_EQ(story.episodes[0].first_step, 1) << "of equals the first";
  EXPECT_EQ(story.episodes[1].first_step, 400);
  EXPECT_EQ(story.episodes[2].first_step, 401);
  EXPECT_EQ(tell({.limit = 0}).episodes.size(), 102U);
}

TEST_F(StoryOf, ByUnitAndByStep) {
  step(5, 1).events = {event(5, "a", JournalEventKind::admitted)};
  step(7).trials = {{.step = 7, .verdict = "numeric", .units = std::vector<std::string>(50, "b"), .errors = {1.0}}};
  run_.journal->steps.back().trials[0].units.push_back("c.down");
  step(9, 1).events = {event(9, "b", JournalEventKind::denied)};
  EXPECT_EQ(tell({.unit_glob = "*.DOWN"}).episodes.at(0).first_step, 7) << "though it is not listed";
  EXPECT_EQ(tell({.unit_glob = "b"}).episodes.size(), 2U);
  EXPECT_EQ(tell({.from_step = 6}).episodes.size(), 2U);
  EXPECT_EQ(tell({.to_step = 6}).episodes.size(), 1U);
  EXPECT_EQ(tell({.from_step = 6, .to_step = 8}).episodes.size(), 1U);
  EXPECT_EQ(tell({.from_step = 6}).summary.recoveries.all, 1U) << "the summary is of the whole run";
}

TEST_F(StoryOf, NumbersThatAreNotDefinedOrNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  io::JournalEvent gone = event(3, "a", JournalEventKind::risk, 1e30);
  gone.ratio.reset();
  io::JournalEvent admitted{.step = 3, .unit = "new", .event = JournalEventKind::admitted};
  step(3, 1).events = {gone, admitted};
  io::JournalEvent infinite = event(4, "b", JournalEventKind::risk, kInfinity);
  infinite.ratio = kInfinity;
  step(4, 1).events = {infinite, event(4, "b", JournalEventKind::admitted, kInfinity)};
  const Story story = tell();
  EXPECT_TRUE(story.episodes.at(0).admitted.at(0).by_error);
  EXPECT_FALSE(story.episodes.at(1).admitted.at(0).by_error);
  expect_all(text_of(story), {"norms: a without a gradient", "norms: b not finite", "new by its error"});
  const nlohmann::json json = nlohmann::json::parse(story_json(story));
  EXPECT_EQ(json["episodes"][1]["worst_risk"]["severity"], "inf");
  EXPECT_FALSE(json["episodes"][0]["worst_risk"].contains("ratio"));
}

TEST_F(StoryOf, AnEmptyJournalHasAStoryToo) {
  run_.journal->header.reset();
  const Story story = tell();
  EXPECT_TRUE(story.episodes.empty());
  expect_all(text_of(story), {"steps               0\n", "No step was run again"});
  EXPECT_TRUE(nlohmann::json::accept(story_json(story)));
}

TEST(StoryOfAFolder, AgreesWithThePage) {
  const test::TemporaryFolder folder;
  test::write_sample_run(folder.file("run"), {.with_trials = true});
  const Story story = make_story(read_run_records(folder.file("run")), {.limit = 0});
  EXPECT_EQ(story.summary.name, "fp8 + gnmr");
  EXPECT_EQ(story.summary.worth.reruns, 5U);
  EXPECT_EQ(story.summary.worth.helpful, 2U);
  EXPECT_NEAR(story.summary.worth.share.value(), 1.25 / (200 * 0.11), 1e-9);
  EXPECT_EQ(story.audit.recoveries.size(), story.summary.recoveries.all);
  EXPECT_EQ(story.audit.rerun_seconds + story.audit.other_seconds, story.summary.worth.seconds);
  const RunFiles alone = read_journal_alone(folder.file("run/journal.jsonl"));
  const Story from_journal = make_story(alone, {.limit = 0});
  EXPECT_EQ(from_journal.episodes.size(), story.episodes.size());
  EXPECT_FALSE(from_journal.summary.worth.share.has_value());
  const nlohmann::json json = nlohmann::json::parse(story_json(story));
  EXPECT_EQ(json["summary"]["verdicts"]["numeric"], 2);
  EXPECT_EQ(json["episode_count"], json["episodes"].size());
  std::uint64_t admitted = 0;
  for (const nlohmann::json& episode : json["episodes"]) admitted += episode.value("admitted_count", 0U);
  EXPECT_EQ(admitted, story.summary.recoveries.all);
}

// 44,544 units that all stand out in ten of 20,000 steps, and denials in all of them.
TEST(StoryOfAFolder, LargeRunsStaySmall) {
  RunFiles run;
  run.journal.emplace();
  run.journal->header.emplace();
  std::vector<std::string> names;
  for (int i = 0; i < 44544; ++i) names.push_back("layers." + std::to_string(i));
  for (const std::string& name : names) run.journal->header->units.push_back({.name = name});
  for (std::int64_t number = 0; number < 20000; ++number) {
    io::JournalStepEntry entry{.number = number};
    entry.step = io::JournalStep{.step = number, .sampled = 44544, .risks = 32};
    for (std::size_t i = 0; i < 32; ++i) {
      entry.events.push_back({.step = number, .unit = names[i], .event = JournalEventKind::denied, .severity = 2.0});
    }
    if (number % 2000 == 0) entry.trials = {{.step = number, .verdict = "numeric", .units = names}};
    run.journal->steps.push_back(std::move(entry));
  }
  run.history = recovery_history(*run.journal);
  const Story story = make_story(run, {});
  EXPECT_LE(story.episodes.size(), 40U);
  EXPECT_LT(story_json(story).size(), 200000U);
  std::size_t lines = 0;
  for (const Episode& episode : story.episodes) lines += episode_lines(episode, story.summary).size();
  EXPECT_LT(lines, 200U);
}

}  // namespace
}  // namespace gnmr::report
