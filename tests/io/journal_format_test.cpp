// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/journal_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::io {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNoNumber = std::nan("");

template <typename Record>
std::string line_of(const Record& record) {
  std::string out;
  append_line(out, record);
  return out;
}

template <typename Record>
Record parsed_line(std::string line) {
  if (line.ends_with('\n')) line.pop_back();
  return std::get<Record>(parse_journal_line(line).value());
}

std::string error_for(const std::string& line) {
  return test::error_of<Error>([&] { parse_journal_line(line); });
}

TEST(JournalFormat, StepLinesLeaveOutWhatIsNotKnown) {
  EXPECT_EQ(line_of(JournalStep{.step = 7, .sampled = 8, .risks = 1, .recovered = 2, .cost_share = 0.25}),
            R"({"kind":"step","step":7,"sampled":8,"risks":1,"common":false,"recovered":2,"cost_share":0.25})"
            "\n");
  EXPECT_EQ(line_of(JournalStep{.step = -1, .loss = kNoNumber, .common = true, .clip_coefficient = 0.5}),
            R"({"kind":"step","step":-1,"loss":"nan","sampled":0,"risks":0,"common":true,"recovered":0,)"
            R"("cost_share":0,"clip_coefficient":0.5})"
            "\n");
}

TEST(JournalFormat, EventLinesLeaveOutWhatIsNotDefined) {
  const Signals rise{.sampled = true, .risk = RiskKind::rise, .ratio = 3, .delta = 2, .fall = -0.5, .severity = 4};
  EXPECT_EQ(line_of(JournalEventView{7, "a\"b", JournalEventKind::admitted, rise, 10}),
            R"({"kind":"event","step":7,"unit":"a\"b","event":"admitted","ratio":3,"delta":2,"fall":-0.5,)"
            R"("severity":4,"left":10})"
            "\n");
  const Signals non_finite{.sampled = true,
                           .risk = RiskKind::non_finite,
                           .ratio = kInfinity,
                           .delta = kNoNumber,
                           .fall = kNoNumber,
                           .severity = kInfinity};
  EXPECT_EQ(line_of(JournalEventView{7, "a", JournalEventKind::risk, non_finite, 0}),
            R"({"kind":"event","step":7,"unit":"a","event":"risk","ratio":"inf","severity":"inf","left":0})"
            "\n");
}

TEST(JournalFormat, TheOtherKinds) {
  EXPECT_EQ(line_of(JournalTrial{.step = 3,
                                 .verdict = "guilty",
                                 .units = {"a", "b"},
                                 .errors = {0.5, kInfinity},
                                 .losses = {-kInfinity},
                                 .seconds = 1.5}),
            R"({"kind":"trial","step":3,"rerun":"trial","verdict":"guilty","units":["a","b"],"errors":[0.5,"inf"],)"
            R"("losses":["-inf"],"seconds":1.5})"
            "\n");
  EXPECT_EQ(line_of(JournalMode{.mode = Mode::watch, .why = "dry run"}),
            "{\"kind\":\"mode\",\"mode\":\"watch\",\"why\":\"dry run\"}\n");
  EXPECT_EQ(line_of(JournalResume{.step = 12}), "{\"kind\":\"resume\",\"step\":12}\n");
  EXPECT_EQ(line_of(JournalNote{.dropped = 5, .text = "full"}),
            "{\"kind\":\"note\",\"dropped\":5,\"text\":\"full\"}\n");
  EXPECT_EQ(line_of(JournalNote{.text = "hello"}), "{\"kind\":\"note\",\"text\":\"hello\"}\n");
}

TEST(JournalFormat, HeadersReadBack) {
  Options options = Options::preset("paper");
  options.tau = 1.25;
  std::string line;
  append_header_line(line, {{.name = "a", .cost = 3, .group = "block0"}, {.name = "b", .forced = true}}, options,
                     "2026-01-31T12:34:56Z");
  EXPECT_TRUE(line.starts_with(R"({"kind":"header","version":1,"options":{"beta":)")) << line;
  EXPECT_NE(line.find(R"("units":[{"name":"a","cost":3,"group":"block0"},{"name":"b","cost":1,"forced":true}],)"
                      R"("started":"2026-01-31T12:34:56Z"})"),
            std::string::npos)
      << line;
  const auto header = parsed_line<JournalHeader>(line);
  EXPECT_EQ(header.options, options);
  ASSERT_EQ(header.units.size(), 2U);
  EXPECT_EQ(header.units[0].cost, 3);
  EXPECT_EQ(header.units[0].group, "block0");
  EXPECT_TRUE(header.units[1].forced);
  EXPECT_EQ(header.started, "2026-01-31T12:34:56Z");
  EXPECT_TRUE(header.sites.empty());  // as in files of older versions
}

TEST(JournalFormat, AHeaderNamesTheSitesOfErrors) {
  const std::vector<std::string> sites{"forward", "weight_gradient"};
  std::string line;
  append_header_line(line, {{.name = "a"}}, {}, "", sites);
  EXPECT_NE(line.find(R"(,"sites":["forward","weight_gradient"]})"), std::string::npos) << line;
  EXPECT_EQ(parsed_line<JournalHeader>(line).sites, sites);
  EXPECT_EQ(site_names(sites, 2), sites);
  const std::vector<std::string> gemms{"forward", "input_gradient", "weight_gradient"};
  EXPECT_EQ(site_names({}, 3), gemms);
  EXPECT_EQ(site_names(sites, 3), gemms);  // names that do not fit are none
  EXPECT_EQ(site_names({}, 2), (std::vector<std::string>{"site 1", "site 2"}));
}

TEST(JournalFormat, WhatIsWrittenIsRead) {
  const auto step = parsed_line<JournalStep>(line_of(JournalStep{.step = 7,
                                                                 .loss = -kInfinity,
                                                                 .sampled = 8,
                                                                 .risks = 3,
                                                                 .common = true,
                                                                 .recovered = 2,
                                                                 .cost_share = 0.1,
                                                                 .denied = 44000,
                                                                 .capped = true,
                                                                 .clip_coefficient = 1.0,
                                                                 .alarm = "spent"}));
  EXPECT_EQ(step.alarm, "spent");
  EXPECT_TRUE(step.capped);
  EXPECT_EQ(step.step, 7);
  EXPECT_EQ(step.loss, -kInfinity);
  EXPECT_EQ(step.sampled, 8U);
  EXPECT_EQ(step.risks, 3U);
  EXPECT_TRUE(step.common);
  EXPECT_EQ(step.recovered, 2U);
  EXPECT_EQ(step.cost_share, 0.1);
  EXPECT_EQ(step.denied, 44000U);
  EXPECT_EQ(step.clip_coefficient, 1.0);
  const Signals zero{.sampled = true,
                     .risk = RiskKind::fall,
                     .ratio = kNoNumber,
                     .delta = kNoNumber,
                     .fall = kNoNumber,
                     .severity = 1.4e30};
  const auto event =
      parsed_line<JournalEvent>(line_of(JournalEventView{9, "h\xC3\xA9", JournalEventKind::futile, zero, 4}));
  EXPECT_EQ(event.unit, "h\xC3\xA9");
  EXPECT_EQ(event.event, JournalEventKind::futile);
  EXPECT_FALSE(event.ratio || event.delta || event.fall);
  EXPECT_EQ(event.severity, 1.4e30);
  EXPECT_EQ(event.left, 4U);
  const auto trial = parsed_line<JournalTrial>(line_of(
      JournalTrial{.step = 1, .verdict = "v", .units = {"x"}, .errors = {kNoNumber}, .losses = {}, .seconds = 2}));
  ASSERT_EQ(trial.errors.size(), 1U);
  EXPECT_TRUE(std::isnan(trial.errors[0]));
  EXPECT_EQ(trial.units, std::vector<std::string>{"x"});
}

TEST(JournalFormat, ATrialWithAllThatCanBeKnown) {
  const JournalTrial whole{.step = 212,
                           .verdict = "numeric",
                           .units = {"a", "b"},
                           .errors = {0.25, kInfinity},
                           .losses = {3.5, 2.5},
                           .seconds = 0.5,
                           .rerun = "replay",
                           .places = {"forward", "weight_gradient"},
                           .excesses = {4, kInfinity},
                           .distance = kInfinity,
                           .norms = {kInfinity, 1.5},
                           .rank = 3,
                           .applied = false,
                           .why = "patrol: a",
                           .left_out = 9};
  const std::string line = line_of(whole);
  EXPECT_EQ(line,
            R"({"kind":"trial","step":212,"rerun":"replay","verdict":"numeric","units":["a","b"],)"
            R"("places":["forward","weight_gradient"],"errors":[0.25,"inf"],"excesses":[4,"inf"],"losses":[3.5,2.5],)"
            R"("norms":["inf",1.5],"distance":"inf","seconds":0.5,"rank":3,"applied":false,"why":"patrol: a",)"
            R"("left_out":9})"
            "\n");
  const auto read = parsed_line<JournalTrial>(line);
  EXPECT_EQ(read.rerun, "replay");
  EXPECT_EQ(read.places, whole.places);
  EXPECT_EQ(read.excesses, whole.excesses);
  EXPECT_EQ(read.distance, kInfinity);
  EXPECT_EQ(read.norms, whole.norms);
  EXPECT_EQ(read.rank, 3);
  EXPECT_EQ(read.applied, false);
  EXPECT_EQ(read.why, "patrol: a");
  EXPECT_EQ(read.left_out, 9U);
}

TEST(JournalFormat, ATrialOfAnEarlierJournal) {
  const auto trial = parsed_line<JournalTrial>(
      R"({"kind":"trial","step":1,"verdict":"gone","units":[],"errors":[],"losses":[],"seconds":1})");
  EXPECT_EQ(trial.verdict, "unlocated") << "what it is called now";
  EXPECT_EQ(trial.rerun, "trial");
  EXPECT_TRUE(trial.places.empty() && trial.excesses.empty() && trial.norms.empty());
  EXPECT_FALSE(trial.distance || trial.rank || trial.applied);
}

// A unit that a trial admitted need not be at risk by its norm, nor have one.
TEST(JournalFormat, AnAdmissionForAnErrorHasTheNumbersThatAreDefined) {
  constexpr auto kError = static_cast<RiskKind>(4);
  const Signals calm{.sampled = true, .risk = kError, .ratio = 1.0, .delta = 0.0, .fall = 0.5, .severity = 0.75};
  EXPECT_EQ(line_of(JournalEventView{9, "a", JournalEventKind::admitted, calm, 10}),
            R"({"kind":"event","step":9,"unit":"a","event":"admitted","ratio":1,"delta":0,"fall":0.5,"severity":0.75,)"
            R"("left":10})"
            "\n");
  const Signals none{.sampled = false,
                     .risk = kError,
                     .ratio = kNoNumber,
                     .delta = kNoNumber,
                     .fall = kNoNumber,
                     .severity = kNoNumber};
  const std::string line = line_of(JournalEventView{9, "a", JournalEventKind::admitted, none, 10});
  EXPECT_EQ(line, "{\"kind\":\"event\",\"step\":9,\"unit\":\"a\",\"event\":\"admitted\",\"left\":10}\n");
  EXPECT_FALSE(parsed_line<JournalEvent>(line).severity.has_value());
}

TEST(JournalFormat, UnknownKindsAndKeysAreSkipped) {
  EXPECT_FALSE(parse_journal_line(R"({"kind":"weather","wind":3})").has_value());
  EXPECT_EQ(parsed_line<JournalResume>(R"({"moon":[1,{"a":2}],"kind":"resume","step":4})").step, 4);
  EXPECT_EQ(parsed_line<JournalHeader>(R"({"kind":"header","version":1,"options":{"tau":3,"later":"x"},"units":[]})")
                .options.tau,
            3);
}

TEST(JournalFormat, ErrorsNameTheField) {
  for (const auto& [line, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "not JSON"},
           {"{", "not JSON"},
           {"[]", "object"},
           {"{}", "kind"},
           {R"({"kind":3})", "kind"},
           {R"({"kind":"resume"})", "step"},
           {R"({"kind":"resume","step":1.5})", "step"},
           {R"({"kind":"resume","step":9223372036854775808})", "step"},
           {R"({"kind":"step","step":1,"sampled":-1,"risks":0,"common":false,"recovered":0,"cost_share":0})",
            "sampled"},
           {R"({"kind":"step","step":1,"sampled":1,"risks":0,"common":0,"recovered":0,"cost_share":0})", "common"},
           {R"({"kind":"step","step":1,"sampled":1,"risks":0,"common":true,"recovered":0,"cost_share":"x"})",
            "cost_share"},
           {R"({"kind":"step","step":1,"sampled":1,"risks":0,"common":true,"recovered":0,"cost_share":0,"denied":-1})",
            "denied"},
           {R"({"kind":"event","step":1,"unit":"a","event":"eaten","left":0})", "eaten"},
           {R"({"kind":"event","step":1,"unit":1,"event":"risk","left":0})", "unit"},
           {R"({"kind":"mode","mode":"asleep"})", "asleep"},
           {R"({"kind":"trial","step":1,"verdict":"v","units":[1],"errors":[],"losses":[],"seconds":1})", "units"},
           {R"({"kind":"trial","step":1,"verdict":"v","units":[],"errors":[],"losses":[],"seconds":1,"rerun":2})",
            "rerun"},
           {R"({"kind":"trial","step":1,"verdict":"v","units":[],"errors":[],"losses":[],"seconds":1,"places":[2]})",
            "places"},
           {R"({"kind":"trial","step":1,"verdict":"v","units":[],"errors":[],"losses":[],"seconds":1,"norms":2})",
            "norms"},
           {R"({"kind":"trial","step":1,"verdict":"v","units":[],"errors":[],"losses":[],"seconds":1,"distance":[]})",
            "distance"},
           {R"({"kind":"trial","step":1,"verdict":"v","units":[],"errors":[],"losses":[],"seconds":1,"rank":0.5})",
            "rank"},
           {R"({"kind":"trial","step":1,"verdict":"v","units":[],"errors":[],"losses":[],"seconds":1,"applied":1})",
            "applied"},
           {R"({"kind":"header","version":2,"options":{},"units":[]})", "version"},
           {R"({"kind":"header","version":1,"options":{"tau":0},"units":[]})", "tau"},
           {R"({"kind":"header","version":1,"options":[],"units":[]})", "options"},
           {R"({"kind":"header","version":1,"options":{},"units":[3]})", "units"},
       }) {
    EXPECT_NE(error_for(line).find(part), std::string::npos) << line << ": " << error_for(line);
  }
}

}  // namespace
}  // namespace gnmr::io
