// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "gnmr/core/error.h"
#include "gnmr/report/audit.h"
#include "gnmr/report/explanation.h"
#include "gnmr/report/run_files.h"
#include "gnmr/report/run_view.h"
#include "gnmr/report/story.h"
#include "io/temporary_folder.h"
#include "report/sample_run.h"

namespace gnmr::report {
namespace {

using test::content_of;
using test::error_of;
using test::put_file;

class ReportOf : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_.file(name); }
  bool has(const std::string& html, const std::string& text) const { return html.find(text) != std::string::npos; }
  void remove(const std::string& name) { std::filesystem::remove(at(name)); }
  test::TemporaryFolder folder_;
};

TEST_F(ReportOf, ChronicUnitsAreMarkedAndListed) {
  test::write_sample_run(at("run"), {});
  const RunView view = make_run_view(read_run_files(at("run"), {}), {});
  ASSERT_TRUE(view.chronic);
  ASSERT_EQ(view.chronic->units.size(), 1U) << "ten steps of trouble in another unit are not chronic";
  const ChronicUnit& unit = view.chronic->units[0];
  EXPECT_EQ(unit.unit, test::kChronicUnit);
  EXPECT_EQ(unit.name, "layers.0.attention.out");
  EXPECT_EQ(unit.place, "input_gradient");
  EXPECT_NEAR(unit.error, 0.3, 0.02);
  ASSERT_TRUE(view.errors);
  EXPECT_EQ(view.errors->chronic, std::vector<std::size_t>{test::kChronicUnit});
  EXPECT_EQ(view.errors->map.unit_count, 28U);
  EXPECT_EQ(view.errors->map.at(5, 103), 0.8F) << "step 104, in which every third unit was measured";
  EXPECT_TRUE(std::isnan(view.errors->map.at(5, 104)));
  const std::string page = make_report(at("run"), {}).html;
  EXPECT_TRUE(has(page, "data-chart=\"errors\""));
  EXPECT_TRUE(has(page, "\"chronic\":[3]"));
  const std::string plain = make_report(at("run"), {.plain = true}).html;
  EXPECT_TRUE(has(plain, "<h2>Chronic units</h2>"));
  EXPECT_TRUE(has(plain, "input_gradient"));
  const Story story = make_story(read_run_records(at("run")), {});
  const std::vector<std::string> lines = summary_lines(story.summary);
  EXPECT_NE(std::find_if(lines.begin(), lines.end(),
                         [&](const std::string& line) {
                           return line.starts_with("chronic units") &&
                                  has(line, "layers.0.attention.out (input_gradient");
                         }),
            lines.end());
  EXPECT_TRUE(has(story_json(story), R"("chronic_units":[{)"));
}

TEST_F(ReportOf, HighPrecisionIsSplitByReason) {
  test::write_sample_run(at("run"), {.with_trials = true});
  const RunFiles run = read_run_files(at("run"), {});
  std::int64_t recovered = 0;
  for (const run::TrainLine& line : run.metrics->train) recovered += *line.recovered;
  ASSERT_GT(recovered, 0);
  const Story story = make_story(run, {});
  ASSERT_TRUE(story.summary.share.high);
  EXPECT_DOUBLE_EQ(story.summary.share.high->acute, static_cast<double>(recovered) / (200 * 28));
  EXPECT_DOUBLE_EQ(story.summary.share.high->reruns, 1.0 / 200) << "the trial of step 45";
  EXPECT_DOUBLE_EQ(story.summary.share.high->total(), static_cast<double>(recovered + 28) / (200 * 28));
  const std::vector<std::string> lines = summary_lines(story.summary);
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [&](const std::string& line) {
                            return line.starts_with("high precision") && has(line, "0.50% reruns");
                          }),
            1);
  EXPECT_TRUE(has(story_json(story), R"("high_shares":{)"));
  EXPECT_TRUE(has(make_report(at("run"), {}).html, "high precision with reruns"));
  test::write_sample_run(at("watch"), {.controller = "watch"});
  EXPECT_FALSE(make_story(read_run_records(at("watch")), {}).summary.share.high) << "nothing was switched";
}

TEST_F(ReportOf, FaultsAreShownInTheStepsOfTheirBatches) {
  test::write_sample_run(at("run"), {});
  std::string truth = "step,a,b\n";
  for (int batch = 1; batch <= 12; ++batch) {
    truth += std::to_string(batch) + (batch == 3 || batch == 4 ? ",1" : ",0") + (batch == 7 ? ",1\n" : ",0\n");
  }
  put_file(at("run/faults.csv"), truth);
  const auto spans = [&] {
    std::vector<std::pair<std::int64_t, std::int64_t>> found;
    const RunFiles run = read_run_files(at("run"), {});
    for (const FaultSpan& span : *run.faults) found.emplace_back(span.first_step, span.last_step);
    return found;
  };
  EXPECT_EQ(spans(), (std::vector<std::pair<std::int64_t, std::int64_t>>{{3, 4}, {7, 7}}));
  // Batches 3 and 4 are held and come again in steps 5 and 6.
  std::string metrics;
  for (int step = 1; step <= 10; ++step) {
    metrics += "{\"kind\":\"train\",\"step\":" + std::to_string(step) +
               ",\"loss\":1,\"batch\":" + std::to_string(step < 5 ? step : step - 2) + "}\n";
  }
  put_file(at("run/metrics.jsonl"), metrics);
  EXPECT_EQ(spans(), (std::vector<std::pair<std::int64_t, std::int64_t>>{{3, 6}, {9, 9}}));
}

TEST_F(ReportOf, RunsWithoutErrorsSayNothingOfThem) {
  test::write_sample_run(at("run"), {.with_errors = false});
  const Report report = make_report(at("run"), {});
  EXPECT_FALSE(has(report.html, "data-chart=\"errors\""));
  EXPECT_FALSE(has(report.html, "<h2>Chronic units</h2>"));
  for (const std::string& remark : report.remarks) EXPECT_FALSE(has(remark, "errors.bin")) << remark;
  for (const std::string& line : summary_lines(make_story(read_run_records(at("run")), {}).summary)) {
    EXPECT_FALSE(line.starts_with("chronic")) << line;
  }
}

TEST_F(ReportOf, DamagedErrorsAreLeftOut) {
  test::write_sample_run(at("run"), {});
  const std::string errors = content_of(at("run/errors.bin"));
  put_file(at("run/errors.bin"), errors + "torn");
  EXPECT_TRUE(has(make_report(at("run"), {}).html, "The last row of errors.bin is torn"));
  std::string other = errors;
  other[12] = '\x1D';  // one unit more
  put_file(at("run/errors.bin"), other);
  const Report report = make_report(at("run"), {});
  ASSERT_EQ(report.remarks.size(), 1U);
  EXPECT_EQ(report.remarks[0],
            "Errors of units and chronic units are left out: the header of errors.bin has 29 units, the journal's 28: "
            "one of them is damaged.");
  EXPECT_FALSE(has(report.html, "data-chart=\"errors\""));
  for (const std::string& content : {content_of(at("run/signals.bin")), std::string("something else")}) {
    put_file(at("run/errors.bin"), content);
    const Report left_out = make_report(at("run"), {});
    ASSERT_EQ(left_out.remarks.size(), 1U);
    EXPECT_TRUE(left_out.remarks[0].starts_with("Errors of units and chronic units are left out: " + at("run") +
                                                "/errors.bin: "))
        << left_out.remarks[0];
    EXPECT_TRUE(has(left_out.html, "relative to its own mean")) << "the rest is there";
    EXPECT_FALSE(has(left_out.html, "data-chart=\"errors\""));
  }
  put_file(at("run/errors.bin"), "");
  EXPECT_FALSE(has(make_report(at("run"), {}).html, "data-chart=\"errors\""));
}

TEST_F(ReportOf, AStoryIsToldWithoutErrorsThatCannotBeRead) {
  test::write_sample_run(at("run"), {});
  const std::string whole = explanation_text(make_story(read_run_to_explain(at("run")), {}), {});
  ASSERT_TRUE(has(whole, "layers.0.attention.out (input_gradient"));
  std::string other = content_of(at("run/errors.bin"));
  other[12] = '\x1D';  // one unit more
  for (const auto& [content, problem] : {std::pair<std::string, std::string>{"something else", "errors.bin: "},
                                         {other, "the header of errors.bin has 29 units, the journal's 28"}}) {
    put_file(at("run/errors.bin"), content);
    const Story story = make_story(read_run_to_explain(at("run")), {});
    std::vector<std::string> lines = summary_lines(story.summary);
    std::erase_if(lines, [](const std::string& line) { return !line.starts_with("chronic units"); });
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_TRUE(has(lines[0], "not known: ") && has(lines[0], problem)) << lines[0];
    EXPECT_FALSE(has(lines[0], "heat map"));
    const std::string json = story_json(story);
    EXPECT_FALSE(has(json, "\"chronic_units\""));
    EXPECT_TRUE(has(json, "\"errors_problem\":") && has(json, problem)) << json;
    const std::string text = explanation_text(story, {});
    EXPECT_EQ(text.substr(text.find("What happened")), whole.substr(whole.find("What happened")));
  }
}

TEST_F(ReportOf, ChronicUnitsThatAreNotKnownAreNoEmptyList) {
  test::write_sample_run(at("run"), {.steps = 12});  // too few for a review that knows errors
  const RunFiles few = read_run_records(at("run"));
  ASSERT_TRUE(few.chronic);
  ASSERT_EQ(few.chronic->reviews, 0U);
  EXPECT_FALSE(has(story_json(make_story(few, {})), "\"chronic_units\""));
  RunFiles none = read_run_records(at("run"));
  none.chronic->reviews = 3;
  EXPECT_TRUE(has(story_json(make_story(none, {})), "\"chronic_units\":[]"));
}

TEST_F(ReportOf, ARunHasEverySection) {
  test::write_sample_run(at("run"), {});
  for (const bool plain : {false, true}) {
    const Report report = make_report(at("run"), {.plain = plain, .program = "gnmr 0.1.0"});
    EXPECT_EQ(report.kind, ReportKind::run);
    EXPECT_TRUE(report.remarks.empty()) << report.remarks[0];
    for (const char* const text :
         {"<h1>fp8 + gnmr</h1>", "recipe fp8-delayed", "Loss on training and held-out data",
          "Gradient norm of each step", "relative to its own mean", "which unit ran in high precision",
          "Use of the budget", "Events, the most severe", "the learning rate was lowered by hand",
          "the budget is 3 of 28", "weather", "sunny", "injected faults", "risk, admitted", "Written by gnmr 0.1.0"}) {
      EXPECT_TRUE(has(report.html, text)) << text;
    }
    EXPECT_EQ(has(report.html, "<script"), !plain);
    EXPECT_EQ(has(report.html, "<noscript><style>"), !plain);
    EXPECT_TRUE(has(report.html, "<p class=\"words\">Loss over steps from step 1 to step 200; training loss from "));
    EXPECT_LT(report.html.size(), 2000000U);
    EXPECT_EQ(make_report(at("run"), {.plain = plain, .program = "gnmr 0.1.0"}).html, report.html);
  }
}

TEST_F(ReportOf, StepsThatWereRunAgainHaveTheirWorth) {
  test::write_sample_run(at("run"), {.with_trials = true});
  for (const bool plain : {false, true}) {
    const std::string html = make_report(at("run"), {.plain = plain}).html;
    for (const char* const text :
         {"What recovery was worth: steps that were run again", "5 steps were run again (1 replay)",
          "2 helpful (the gradient changed by a tenth or more), 1 slight", "1 wasted (the cause was common)",
          "1 unlocated (no unit to blame)", "That took 1.25 s, 5.7 % of the time in steps.", "1 rerun made no update",
          "0.312 (4 × limit)", "layers.1.attention.q and 1 more", "<td>wasted</td>", "<td>slight</td>",
          "steps run again</dt><dd>5</dd>", "2 helpful, 1 wasted, 1 unlocated"}) {
      EXPECT_TRUE(has(html, text)) << text;
    }
  }
  test::write_sample_run(at("run"), {});
  EXPECT_FALSE(has(make_report(at("run")).html, "What recovery was worth"));
}

TEST_F(ReportOf, EachRecoveryHasItsWorthAndCost) {
  test::write_sample_run(at("run"), {.with_trials = true});
  for (const bool plain : {false, true}) {
    const std::string html = make_report(at("run"), {.plain = plain}).html;
    for (const char* const text :
         {"Each recovery: its worth and its cost", "not run again", "not measured", "rerun s", "high s",
          "Cost: ", " of the time in steps.", "What high precision took is estimated"}) {
      EXPECT_TRUE(has(html, text)) << text;
    }
  }
  // Steps all take 0.11 s, and so high precision took nothing.
  const Audit audit = audit_run(read_run_records(at("run")));
  ASSERT_GE(audit.recoveries.size(), 3U);
  for (const RecoveryAudit& recovery : audit.recoveries) {
    if (recovery.recovery.last_step < 80) {
      EXPECT_NEAR(recovery.extra_seconds.value(), 0, 1e-12);
    }
  }
  test::write_sample_run(at("run"), {.controller = "watch"});
  EXPECT_FALSE(has(make_report(at("run")).html, "Each recovery: its worth"));
}

TEST_F(ReportOf, StepsThatAResumedRunDidNotReachAgainAreNotShown) {
  test::write_sample_run(at("run"), {.with_trials = true});
  const std::string resume = "{\"kind\":\"resume\",\"step\":60}\n";
  put_file(at("run/journal.jsonl"), content_of(at("run/journal.jsonl")) + resume);
  put_file(at("run/metrics.jsonl"), content_of(at("run/metrics.jsonl")) + resume);
  const std::string html = make_report(at("run"), {.plain = true}).html;
  EXPECT_TRUE(has(html, "1 step was run again: 1 helpful"));
  EXPECT_TRUE(has(html, "<dt>steps</dt><dd>59</dd>"));
}

TEST_F(ReportOf, NothingIsLoadedAndNoOtherScriptRuns) {
  test::write_sample_run(at("run"), {});
  const std::string plain = make_report(at("run"), {.plain = true}).html;
  EXPECT_FALSE(has(plain, "<script"));
  EXPECT_FALSE(has(plain, "script-src"));
  EXPECT_TRUE(has(plain, "default-src 'none'"));
  EXPECT_FALSE(has(plain, "http://"));
  EXPECT_FALSE(has(plain, "https://"));
  const std::string html = make_report(at("run")).html;
  EXPECT_TRUE(has(html, "script-src 'sha256-"));
  EXPECT_FALSE(has(html, "'unsafe-eval'"));
}

TEST_F(ReportOf, HostileNamesAreText) {
  const std::string name = "</script><b onmouseover=\"x\">";
  test::write_sample_run(at("run"), {.label = "</title><script>alert(1)</script>", .odd_unit_name = name});
  for (const bool plain : {false, true}) {
    const std::string html = make_report(at("run"), {.plain = plain}).html;
    EXPECT_FALSE(has(html, "<b onmouseover"));
    EXPECT_FALSE(has(html, "<script>alert"));
    EXPECT_TRUE(has(html, "&lt;script&gt;alert(1)"));
  }
}

TEST_F(ReportOf, WhatIsMissingIsSaid) {
  test::write_sample_run(at("run"), {});
  remove("run/metrics.jsonl");
  remove("run/signals.bin");
  remove("run/faults.csv");
  Report report = make_report(at("run"));
  EXPECT_EQ(report.remarks.size(), 2U);
  EXPECT_TRUE(has(report.html, "There is no metrics.jsonl"));
  EXPECT_TRUE(has(report.html, "There is no signals.bin"));
  EXPECT_TRUE(has(report.html, "Loss on training")) << "the journal knows the loss";
  EXPECT_FALSE(has(report.html, "relative to its own mean"));
  remove("run/run.json");
  report = make_report(at("run"));
  EXPECT_TRUE(has(report.html, "There is no run.json"));
  EXPECT_TRUE(has(report.html, "<h1>run</h1>"));
}

TEST_F(ReportOf, ARunWithoutAControllerHasNoJournalToMiss) {
  test::write_sample_run(at("run"), {.controller = "none", .with_faults = false});
  const Report report = make_report(at("run"), {.plain = true});
  EXPECT_TRUE(report.remarks.empty());
  EXPECT_FALSE(has(report.html, "Use of the budget"));
  EXPECT_TRUE(has(report.html, "relative to its own mean"));
}

TEST_F(ReportOf, AKilledRunIsShownAsFarAsItGoes) {
  test::write_sample_run(at("run"), {.steps = 90});
  for (const char* const file : {"run/metrics.jsonl", "run/journal.jsonl", "run/signals.bin"}) {
    std::filesystem::resize_file(at(file), std::filesystem::file_size(at(file)) - 7);
  }
  const Report report = make_report(at("run"));
  EXPECT_EQ(report.remarks.size(), 3U);
  EXPECT_TRUE(has(report.html, "of 200 planned"));
  EXPECT_TRUE(has(report.html, "The last line of journal.jsonl is torn"));
  for (const char* const file : {"run/metrics.jsonl", "run/journal.jsonl", "run/signals.bin"}) put_file(at(file), "");
  EXPECT_TRUE(has(make_report(at("run")).html, "<h1>"));
}

TEST_F(ReportOf, SignalsOfAnotherWidthThanTheJournalsAreLeftOut) {
  test::write_sample_run(at("run"), {});
  std::string signals = content_of(at("run/signals.bin"));
  EXPECT_TRUE(has(make_report(at("run")).html, "relative to its own mean"));
  for (const int bit : {0, 3, 30}) {
    std::string damaged = signals;
    damaged[static_cast<std::size_t>(12 + bit / 8)] ^= static_cast<char>(1 << (bit % 8));
    put_file(at("run/signals.bin"), damaged);
    const Report report = make_report(at("run"));
    ASSERT_EQ(report.remarks.size(), 1U) << bit;
    EXPECT_TRUE(has(report.remarks[0], "The heat map is left out: the header of signals.bin")) << report.remarks[0];
    EXPECT_FALSE(has(report.html, "relative to its own mean"));
  }
}

TEST_F(ReportOf, DamageIsAnErrorWithItsPlace) {
  test::write_sample_run(at("run"), {});
  const std::string metrics = content_of(at("run/metrics.jsonl"));
  put_file(at("run/metrics.jsonl"), "nonsense\n" + metrics);
  std::string message = error_of<Error>([&] { make_report(at("run")); });
  EXPECT_TRUE(has(message, "metrics.jsonl: line 1: not JSON")) << message;
  put_file(at("run/metrics.jsonl"), metrics);
  put_file(at("run/journal.jsonl"), content_of(at("run/journal.jsonl")) + "nonsense\n{}\n");
  message = error_of<Error>([&] { make_report(at("run")); });
  EXPECT_TRUE(has(message, "journal.jsonl: line ")) << message;
  remove("run/journal.jsonl");
  put_file(at("run/faults.csv"), "step,a\n1,7\n");
  message = error_of<Error>([&] { make_report(at("run")); });
  EXPECT_TRUE(has(message, "faults.csv: line 2, column 2")) << message;
  put_file(at("run/run.json"), "{\"version\":2}");
  message = error_of<Error>([&] { make_report(at("run")); });
  EXPECT_TRUE(has(message, "run.json: version 2, this program reads 1")) << message;
  put_file(at("run/run.json"), "{\"version\":1,\"steps\":\"many\"}");
  message = error_of<Error>([&] { make_report(at("run")); });
  EXPECT_TRUE(has(message, "run.json: `steps`: expected a whole number")) << message;
}

TEST_F(ReportOf, NoRunAndNoSuite) {
  std::filesystem::create_directory(at("empty"));
  std::string message = error_of<Error>([&] { make_report(at("empty")); });
  EXPECT_TRUE(has(message, "looked for suite.json, run.json and journal.jsonl")) << message;
  message = error_of<Error>([&] { make_report(at("nowhere")); });
  EXPECT_TRUE(has(message, "no such directory")) << message;
  put_file(at("file"), "x");
  message = error_of<Error>([&] { make_report(at("file")); });
  EXPECT_TRUE(has(message, "not a file")) << message;
}

TEST_F(ReportOf, ASuiteHasArmsTableAndRuns) {
  test::write_sample_suite(at("suite"), {0, 1});
  for (const bool plain : {false, true}) {
    const Report report = make_report(at("suite"), {.plain = plain});
    EXPECT_EQ(report.kind, ReportKind::suite);
    EXPECT_TRUE(report.remarks.empty()) << report.remarks[0];
    for (const char* const text :
         {"<h1>Nano model with injected faults</h1>", "2.301 ± 0.006", "gap closed", "The gap is that of two seeds.",
          "Training loss of all arms", "Use of the budget by the arms", "not finished", "fp8 + gnmr, seed 1",
          "every unit in bfloat16", "as good as high precision", "Held-out text"}) {
      EXPECT_TRUE(has(report.html, text)) << text;
    }
    EXPECT_TRUE(has(report.html, "<select id=\"run-choice\">"));
    EXPECT_EQ(has(report.html, "<script"), !plain);
    EXPECT_LT(report.html.size(), 3000000U);
  }
}

TEST_F(ReportOf, AHalfDoneSuiteIsShownAsFarAsItGoes) {
  test::write_sample_suite(at("suite"), {0});
  remove("suite/summary.json");
  std::filesystem::remove_all(at("suite/cells"));
  put_file(at("suite/runs/fp8-seed0/metrics.jsonl"), "nonsense\n");
  const Report report = make_report(at("suite"), {.plain = true});
  ASSERT_EQ(report.remarks.size(), 2U);
  EXPECT_TRUE(has(report.remarks[0], "no summary.json yet"));
  EXPECT_TRUE(has(report.remarks[1], "fp8, seed 0, is left out: ")) << report.remarks[1];
  EXPECT_TRUE(has(report.remarks[1], "metrics.jsonl: line 1: not JSON")) << report.remarks[1];
  EXPECT_TRUE(has(report.html, "cannot be read"));
  put_file(at("suite/suite.json"), "{\"version\":1}");
  std::filesystem::remove_all(at("suite/runs"));
  EXPECT_TRUE(has(make_report(at("suite")).html, "No run has begun"));
}

TEST_F(ReportOf, DamageOfASuiteNamesItsPlace) {
  test::write_sample_suite(at("suite"), {0});
  put_file(at("suite/summary.json"), "{\"version\":1,\"columns\":[{\"title\":\"x\"}]}");
  std::string message = error_of<Error>([&] { make_report(at("suite")); });
  EXPECT_TRUE(has(message, "summary.json: `columns[0].key` is missing")) << message;
  put_file(at("suite/suite.json"), "{\"version\":1,\"arms\":7}");
  message = error_of<Error>([&] { make_report(at("suite")); });
  EXPECT_TRUE(has(message, "suite.json: `arms`: expected a list of objects")) << message;
}

TEST_F(ReportOf, ARunWithANameThatNoSystemTakesIsNoCrash) {
  const std::string longest(5000, 'x');
  EXPECT_EQ(folder_name(at(longest)), longest);
  EXPECT_EQ(folder_name(at("here/../there")), "there");
  EXPECT_EQ(read_run_records(at(longest)).name, longest);
}

TEST_F(ReportOf, LargeRunsStaySmall) {
  test::write_sample_run(at("run"), {.steps = 3000, .layers = 60});
  for (const bool plain : {false, true}) {
    const Report report = make_report(at("run"), {.plain = plain});
    EXPECT_LT(report.html.size(), 2500000U);
    EXPECT_TRUE(has(report.html, "Of 420 units the 200 with the most events are shown"));
    EXPECT_TRUE(has(report.html, "A column is 3 steps"));
  }
}

TEST_F(ReportOf, IsWrittenWhereItWasAsked) {
  test::write_sample_run(at("run"), {});
  EXPECT_EQ(write_report(at("run")), at("run/report.html"));
  EXPECT_EQ(content_of(at("run/report.html")), make_report(at("run")).html);
  EXPECT_EQ(write_report(at("run"), at("other.html"), {.plain = true}), at("other.html"));
  EXPECT_TRUE(content_of(at("other.html")).starts_with("<!doctype html>"));
}

}  // namespace
}  // namespace gnmr::report
