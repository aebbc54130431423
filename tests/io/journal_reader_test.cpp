// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/journal_reader.h"

#include <gtest/gtest.h>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::io {
namespace {

std::string step_line(int step, int recovered) {
  return R"({"kind":"step","step":)" + std::to_string(step) + R"(,"sampled":2,"risks":1,"common":false,"recovered":)" +
         std::to_string(recovered) + R"(,"cost_share":0.5})" + "\n";
}

std::string event_line(int step, const std::string& unit) {
  return R"({"kind":"event","step":)" + std::to_string(step) + R"(,"unit":")" + unit +
         R"(","event":"admitted","ratio":3,"left":10})" + "\n";
}

const std::string kTrial = R"({"kind":"trial","step":2,"verdict":"v","units":[],"errors":[],"losses":[],"seconds":1})"
                           "\n";

Journal journal_of(const std::string& text) {
  JournalReader reader(memory_byte_source("run.jsonl", text));
  return read_journal(reader);
}

TEST(JournalReader, GivesRecordsInOrderAndSkipsUnknownKinds) {
  JournalReader reader(memory_byte_source("run.jsonl", step_line(1, 0) + "{\"kind\":\"weather\"}\n" +
                                                           event_line(1, "a") + "{\"kind\":\"resume\",\"step\":2}\n"));
  JournalRecord record;
  ASSERT_TRUE(reader.next(record));
  EXPECT_EQ(std::get<JournalStep>(record).step, 1);
  ASSERT_TRUE(reader.next(record));
  EXPECT_EQ(std::get<JournalEvent>(record).unit, "a");
  EXPECT_EQ(reader.line_number(), 3U);
  ASSERT_TRUE(reader.next(record));
  EXPECT_EQ(std::get<JournalResume>(record).step, 2);
  EXPECT_FALSE(reader.next(record));
  EXPECT_FALSE(reader.torn());
}

TEST(JournalReader, ATornLastLineIsToldWhereverItIsCut) {
  const std::string whole = step_line(1, 0);
  const std::string last = step_line(2, 0);
  for (std::size_t cut = 1; cut < last.size(); ++cut) {
    const Journal journal = journal_of(whole + last.substr(0, cut));
    ASSERT_TRUE(journal.torn) << cut;
    ASSERT_EQ(journal.steps.size(), 1U) << cut;
  }
  EXPECT_FALSE(journal_of(whole + last).torn);
  EXPECT_FALSE(journal_of("").torn);
}

TEST(JournalReader, ABadLineBeforeTheLastIsAnErrorWithItsNumber) {
  const std::string error =
      test::error_of<Error>([] { journal_of(step_line(1, 0) + "{\"kind\":\"st\n" + step_line(2, 0)); });
  EXPECT_NE(error.find("run.jsonl: line 2"), std::string::npos) << error;
  EXPECT_THROW(journal_of(step_line(1, 0) + "\n"), Error);
  EXPECT_THROW(journal_of("{\"kind\":\"resume\",\"step\":\"x\"}\n"), Error);
}

TEST(JournalReader, AResumedRunSupersedesItsStepsAndThoseItHasNotReachedAgain) {
  const Journal journal = journal_of(step_line(1, 1) + event_line(1, "old") + step_line(2, 2) + event_line(2, "old") +
                                     step_line(3, 3) + "{\"kind\":\"resume\",\"step\":2}\n" + kTrial + step_line(2, 7) +
                                     event_line(2, "new") + event_line(2, "newer"));
  ASSERT_EQ(journal.steps.size(), 2U);
  EXPECT_EQ(journal.steps[0].number, 1);
  EXPECT_EQ(journal.steps[0].events.at(0).unit, "old");
  EXPECT_EQ(journal.steps[1].step->recovered, 7U);
  ASSERT_EQ(journal.steps[1].events.size(), 2U);
  EXPECT_EQ(journal.steps[1].events[0].unit, "new");
  EXPECT_EQ(journal.steps[1].trials.size(), 1U);
  EXPECT_EQ(journal.resumes.at(0).step, 2);
}

TEST(JournalReader, WithoutAResumeTheLastOccurrenceOfAStepCounts) {
  const Journal journal = journal_of(step_line(1, 1) + step_line(2, 2) + step_line(3, 3) + step_line(2, 7));
  ASSERT_EQ(journal.steps.size(), 3U);
  EXPECT_EQ(journal.steps[1].step->recovered, 7U);
  EXPECT_EQ(journal.steps[2].step->recovered, 3U);
}

TEST(JournalReader, ModesAndNotesKnowTheStepBeforeThem) {
  const std::string mode = "{\"kind\":\"mode\",\"mode\":\"high\"}\n";
  const Journal journal =
      journal_of(mode + step_line(4, 0) + event_line(4, "a") + mode + step_line(5, 0) +
                 "{\"kind\":\"resume\",\"step\":5}\n" + mode + "{\"kind\":\"note\",\"text\":\"x\"}\n");
  ASSERT_EQ(journal.modes.size(), 3U);
  EXPECT_FALSE(journal.modes[0].after_step.has_value());
  EXPECT_EQ(journal.modes[1].after_step, 4);
  EXPECT_EQ(journal.modes[2].after_step, 4);
  EXPECT_EQ(journal.notes.at(0).after_step, 4);
}

TEST(JournalReader, AStepThatWasTheLastBeforeAResumeIsToldAnew) {
  const Journal journal =
      journal_of(step_line(2, 1) + event_line(2, "old") + "{\"kind\":\"resume\",\"step\":2}\n" + step_line(2, 5));
  ASSERT_EQ(journal.steps.size(), 1U);
  EXPECT_EQ(journal.steps[0].step->recovered, 5U);
  EXPECT_TRUE(journal.steps[0].events.empty());
}

TEST(JournalReader, CollectsModesNotesAndDrops) {
  const Journal journal = journal_of(
      "{\"kind\":\"header\",\"version\":1,\"options\":{\"tau\":3},\"units\":[{\"name\":\"a\",\"cost\":2}]}\n"
      "{\"kind\":\"mode\",\"mode\":\"watch\",\"why\":\"dry run\"}\n"
      "{\"kind\":\"note\",\"dropped\":3}\n{\"kind\":\"note\",\"dropped\":4,\"text\":\"x\"}\n"
      "{\"kind\":\"note\",\"text\":\"y\"}\n");
  EXPECT_EQ(journal.header.value().units.at(0).cost, 2);
  EXPECT_EQ(journal.modes.at(0).mode, Mode::watch);
  EXPECT_EQ(journal.notes.size(), 3U);
  EXPECT_EQ(journal.dropped, 7U);
}

TEST(JournalReader, ReadsFiles) {
  const test::TemporaryFolder folder;
  test::put_file(folder.file("run.jsonl"), step_line(1, 0) + "{\"ki");
  const Journal journal = read_journal(folder.file("run.jsonl"));
  EXPECT_EQ(journal.steps.size(), 1U);
  EXPECT_TRUE(journal.torn);
  EXPECT_THROW(read_journal(folder.file("none.jsonl")), Error);
}

}  // namespace
}  // namespace gnmr::io
