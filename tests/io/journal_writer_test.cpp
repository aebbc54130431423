// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/journal_writer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/run_step.h"
#include "gnmr/core/error.h"
#include "gnmr/io/journal_reader.h"
#include "io/file_size_limit.h"
#include "io/temporary_folder.h"

namespace gnmr::io {
namespace {

using test::content_of;
using test::error_of;
using test::lines_of;

std::vector<Unit> units(std::size_t count) {
  std::vector<Unit> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = {.name = fmt::format("u{}", i), .cost = 2};
  return made;
}

Options quick_options() {
  Options options;
  options.warmup_samples = 2;
  options.lock_steps = 3;
  options.max_o = 1;
  options.common_share = 1;
  return options;
}

void journal_step(JournalWriter& journal, Controller& controller, std::int64_t step, const std::vector<double>& norms,
                  const StepContext& context = {}) {
  const Outcome& outcome = gnmr::testing::run_step(controller, {.step = step, .norms = norms});
  journal.step(controller, outcome.alarm, outcome.decision, context);
}

JournalSettings direct(const std::string& path) { return {.path = path, .in_background = false}; }

TEST(JournalWriter, StandingRecoveriesSayWhetherTheyFill) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("run.jsonl");
  Options options;
  options.max_o = 2;
  Controller controller(units(6), options, {.can_rerun = false, .sites = 1});
  JournalWriter journal(direct(path));
  const std::vector<double> norms(6, 1.0);
  const std::vector<double> errors{0.15, 0.15, 0.25, 0.15, 0.5, 0.15};
  for (int step = 1; step <= 40; ++step) {
    const Outcome& outcome = gnmr::testing::run_step(controller, {.step = step, .norms = norms, .errors = errors});
    journal.step(controller, outcome.alarm, outcome.decision, {});
  }
  journal.close();
  std::vector<std::string> events;
  const Journal read = read_journal(path);
  for (const JournalEvent& event : read.steps.back().events) {
    events.push_back(event.unit + " " + std::string(to_string(event.event)));
  }
  EXPECT_EQ(events, (std::vector<std::string>{"u2 filling", "u4 standing"}));
}

TEST(JournalWriter, WhatIsWrittenIsReadBack) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("run.jsonl");
  Controller controller(units(3), quick_options());
  JournalWriter journal({.path = path});
  EXPECT_FALSE(journal.resumed());
  journal.header(controller.units(), controller.options(), "2026-01-31T12:34:56Z");
  journal.mode({.mode = Mode::armed, .why = "asked"});
  for (int step = 0; step < 5; ++step) journal_step(journal, controller, step, {1, 1, 1}, {.loss = 2.5});
  journal.trial({.step = 5, .verdict = "guilty", .units = {"u1"}, .errors = {0.5}, .losses = {1, 2}, .seconds = 0.1});
  journal_step(journal, controller, 5, {1, 10, 9}, {.loss = std::nan(""), .clip_coefficient = 0.25});
  journal.note("that was all");
  ASSERT_TRUE(journal.close(std::chrono::seconds(20)));

  const Journal read = read_journal(path);
  EXPECT_EQ(read.header.value().options, controller.options());
  EXPECT_EQ(read.header.value().units.size(), 3U);
  EXPECT_EQ(read.modes.at(0).why, "asked");
  EXPECT_EQ(read.notes.at(0).text, "that was all");
  ASSERT_EQ(read.steps.size(), 6U);
  EXPECT_EQ(read.steps[3].step->loss, 2.5);
  EXPECT_FALSE(read.steps[3].step->clip_coefficient);
  EXPECT_TRUE(read.steps[3].events.empty());
  const JournalStepEntry& last = read.steps[5];
  EXPECT_TRUE(std::isnan(last.step->loss.value()));
  EXPECT_EQ(last.step->clip_coefficient, 0.25);
  EXPECT_EQ(last.step->sampled, 3U);
  EXPECT_EQ(last.step->risks, 2U);
  EXPECT_EQ(last.step->recovered, 1U);
  EXPECT_DOUBLE_EQ(last.step->cost_share, 1.0 / 3);
  EXPECT_EQ(last.trials.at(0).verdict, "guilty");
  ASSERT_EQ(last.events.size(), 4U);
  EXPECT_EQ(last.events[0].event, JournalEventKind::risk);
  EXPECT_EQ(last.events[0].unit, "u1");
  EXPECT_NEAR(last.events[0].ratio.value(), 10, 1e-9);
  EXPECT_NEAR(last.events[0].delta.value(), 9, 1e-9);
  EXPECT_EQ(last.events[1].unit, "u2");
  EXPECT_EQ(last.events[2].event, JournalEventKind::admitted);
  EXPECT_EQ(last.events[2].unit, "u1");
  EXPECT_EQ(last.events[2].left, 3U);
  EXPECT_EQ(last.events[3].event, JournalEventKind::denied);
  EXPECT_EQ(last.events[3].unit, "u2");
  EXPECT_EQ(last.events[3].left, 0U);
}

TEST(JournalWriter, UndefinedSignalsAreLeftOut) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("run.jsonl");
  Controller controller(units(3), quick_options());
  JournalWriter journal(direct(path));
  for (int step = 0; step < 5; ++step) journal_step(journal, controller, step, {1, 1, 1});
  journal_step(journal, controller, 5, {std::numeric_limits<double>::infinity(), 0, 1});
  journal.close();
  const std::vector<std::string> lines = lines_of(content_of(path));
  EXPECT_EQ(lines.at(6),
            R"({"kind":"event","step":5,"unit":"u0","event":"risk","ratio":"inf","severity":"inf","left":3})");
  EXPECT_TRUE(lines.at(7).starts_with(R"({"kind":"event","step":5,"unit":"u1","event":"risk","severity":)"))
      << lines.at(7);
}

TEST(JournalWriter, RisksOfTheMostSevereUnitsOnly) {
  const test::TemporaryFolder folder;
  Controller controller(units(50), quick_options());
  JournalWriter journal(direct(folder.file("run.jsonl")));
  std::vector<double> norms(50, 1);
  for (int step = 0; step < 5; ++step) journal_step(journal, controller, step, norms);
  for (std::size_t i = 0; i < norms.size(); ++i) norms[i] = 10 + static_cast<double>(i / 2);
  journal_step(journal, controller, 5, norms);
  journal.close();
  const Journal read = read_journal(folder.file("run.jsonl"));
  const JournalStepEntry& last = read.steps.at(5);
  EXPECT_EQ(last.step->risks, 50U);
  std::vector<std::string> shown;
  for (const JournalEvent& event : last.events) {
    if (event.event == JournalEventKind::risk) shown.push_back(event.unit);
  }
  ASSERT_EQ(shown.size(), 32U);
  for (std::size_t i = 0; i < shown.size(); ++i) EXPECT_EQ(shown[i], fmt::format("u{}", 49 - i));
  EXPECT_EQ(last.events.size(), 32U + 1 + 32);
}

TEST(JournalWriter, DeniedUnitsAreCountedAndTheMostSevereTold) {
  const test::TemporaryFolder folder;
  Controller controller(units(200), quick_options());
  JournalWriter journal(direct(folder.file("run.jsonl")));
  std::vector<double> norms(200, 1);
  for (int step = 0; step < 5; ++step) journal_step(journal, controller, step, norms);
  // Units 0, 3, 6 ... rise more than the others, the later the more.
  for (std::size_t i = 0; i < norms.size(); ++i) norms[i] = (i % 3 == 0 ? 1000 : 10) + static_cast<double>(i);
  journal_step(journal, controller, 5, norms);
  // Few of them: each has its line.
  std::fill(norms.begin(), norms.end(), 1);
  for (int step = 6; step < 60; ++step) journal_step(journal, controller, step, norms);
  for (std::size_t i = 0; i < 33; ++i) norms[i] = 1000;
  journal_step(journal, controller, 60, norms);
  journal.close();
  const Journal read = read_journal(folder.file("run.jsonl"));
  const auto denied = [&](std::size_t step) {
    std::vector<std::string> names;
    for (const JournalEvent& event : read.steps.at(step).events) {
      if (event.event == JournalEventKind::denied) names.push_back(event.unit);
    }
    return names;
  };
  const std::size_t all = read.steps.at(5).step->denied;
  EXPECT_EQ(all + read.steps[5].step->recovered, 200U);
  // Those with the largest norms that were not admitted: u195 and every third one before it, in unit order.
  const std::vector<std::string> shown = denied(5);
  ASSERT_EQ(shown.size(), kMostDeniedPerStep);
  const std::size_t last = 198 - 3 * read.steps[5].step->recovered;
  for (std::size_t i = 0; i < shown.size(); ++i) EXPECT_EQ(shown[i], fmt::format("u{}", last - 3 * (31 - i)));
  EXPECT_EQ(read.steps.at(4).step->denied, 0U);
  EXPECT_EQ(denied(60).size(), std::min<std::size_t>(read.steps[60].step->denied, 32));
}

TEST(JournalWriter, ATrialNamesTheUnitsThatStandOutMost) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("run.jsonl");
  JournalTrial trial{.step = 1, .verdict = "common"};
  for (std::size_t i = 0; i < 2000; ++i) {
    trial.units.push_back(fmt::format("u{}", i));
    trial.errors.push_back(0.5);
    trial.places.emplace_back(i % 2 == 0 ? "forward" : "weight_gradient");
    trial.excesses.push_back(i % 4 == 1 ? 100.0 + static_cast<double>(i) : 1.0);
  }
  JournalWriter journal(direct(path));
  journal.trial(trial);
  trial.units.resize(kMostUnitsATrial);
  trial.errors.resize(kMostUnitsATrial);
  trial.places.resize(kMostUnitsATrial);
  trial.excesses.resize(kMostUnitsATrial);
  journal.trial(trial);
  journal.close();
  const std::vector<JournalTrial> read = read_journal(path).steps.at(0).trials;
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].left_out, 2000 - kMostUnitsATrial);
  ASSERT_EQ(read[0].units.size(), kMostUnitsATrial);
  // All 500 that stand out, and of the equal others the first, in the order that they had.
  std::size_t standing = 0;
  for (std::size_t i = 0; i < read[0].units.size(); ++i) {
    if (read[0].excesses.at(i) > 1) {
      ++standing;
      EXPECT_EQ(read[0].places.at(i), "weight_gradient");
      EXPECT_EQ(read[0].units[i], fmt::format("u{}", read[0].excesses[i] - 100));
    }
  }
  EXPECT_EQ(standing, 500U);
  EXPECT_EQ(read[0].errors.size(), kMostUnitsATrial);
  EXPECT_EQ(read[1].left_out, 0U);
  EXPECT_EQ(read[1].units, trial.units);
}

TEST(JournalWriter, FutileAndReleasedUnitsHaveALineEach) {
  const test::TemporaryFolder folder;
  Controller controller(units(2), quick_options());
  JournalWriter journal(direct(folder.file("run.jsonl")));
  for (int step = 0; step < 5; ++step) journal_step(journal, controller, step, {1, 1});
  for (int step = 5; step < 9; ++step) journal_step(journal, controller, step, {std::nan(""), 1});
  journal.close();
  std::vector<JournalEventKind> kinds;
  const Journal read = read_journal(folder.file("run.jsonl"));
  for (const JournalEvent& event : read.steps.at(8).events) {
    EXPECT_EQ(event.unit, "u0");
    kinds.push_back(event.event);
  }
  EXPECT_EQ(kinds, (std::vector{JournalEventKind::risk, JournalEventKind::futile, JournalEventKind::released}));
}

TEST(JournalWriter, AResumedJournalLosesItsTornLineAndSaysResume) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("run.jsonl");
  Controller controller(units(2), quick_options());
  {
    JournalWriter journal({.path = path});
    journal.header(controller.units(), controller.options(), "");
    journal_step(journal, controller, 0, {1, 1});
    journal_step(journal, controller, 1, {1, 1});
  }
  const std::string whole = content_of(path);
  test::put_file(path, whole + "{\"kind\":\"step\",\"st");
  EXPECT_NE(error_of<Error>([&] { JournalWriter{{.path = path}}; }).find(path), std::string::npos);
  {
    JournalWriter journal({.path = path, .existing = ExistingFile::resume, .resume_step = 1});
    EXPECT_TRUE(journal.resumed());
    journal_step(journal, controller, 1, {2, 2});
  }
  const std::string content = content_of(path);
  EXPECT_TRUE(content.starts_with(whole + "{\"kind\":\"resume\",\"step\":1}\n{\"kind\":\"step\",\"step\":1,"))
      << content;
  const Journal read = read_journal(path);
  EXPECT_EQ(read.steps.size(), 2U);
  EXPECT_EQ(read.resumes.at(0).step, 1);
  EXPECT_FALSE(read.torn);
}

TEST(JournalWriter, ANewJournalThatMayBeResumedHasNoResumeLine) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("run.jsonl");
  { JournalWriter journal({.path = path, .existing = ExistingFile::resume, .resume_step = 9}); }
  EXPECT_EQ(content_of(path), "");
}

TEST(JournalWriter, AFullDiskNeverStopsAStepAndIsToldLater) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("run.jsonl");
  Controller controller(units(2), quick_options());
  JournalWriter journal({.path = path, .queue_bytes = 1000});
  constexpr int kSteps = 200;
  {
    const test::FileSizeLimit limit(777);
    for (int step = 0; step < kSteps; ++step) journal_step(journal, controller, step, {1, 1});
    EXPECT_GT(journal.dropped(), 100U);
  }
  journal.note("space again");
  ASSERT_TRUE(journal.close(std::chrono::seconds(20)));
  const Journal read = read_journal(path);
  EXPECT_FALSE(read.torn);
  EXPECT_EQ(read.dropped, journal.dropped());
  // The remark itself may have been dropped, if the queue was still full then.
  const std::uint64_t remarks = static_cast<std::uint64_t>(
      std::count_if(read.notes.begin(), read.notes.end(), [](const JournalNote& note) { return note.dropped == 0; }));
  EXPECT_EQ(read.steps.size() + remarks + read.dropped, static_cast<std::size_t>(kSteps) + 1);
}

TEST(JournalWriter, AFullDiskIsAnErrorWhereItWritesDirectly) {
  Controller controller(units(2), quick_options());
  JournalWriter journal({.path = "/dev/full", .existing = ExistingFile::replace, .in_background = false});
  journal.header(controller.units(), controller.options(), "");
  EXPECT_NE(error_of<Error>([&] { journal.close(); }).find("/dev/full"), std::string::npos);
}

TEST(JournalWriter, WhatCannotBeOpenedIsAnErrorAtOnce) {
  EXPECT_THROW(JournalWriter({.path = "/proc/none/run.jsonl"}), Error);
  EXPECT_THROW(JournalWriter({.path = "-", .in_background = true}), Error);
}

TEST(JournalWriter, TimesAreInUtc) {
  EXPECT_EQ(utc_text(std::chrono::system_clock::from_time_t(1769862896)), "2026-01-31T12:34:56Z");
}

}  // namespace
}  // namespace gnmr::io
