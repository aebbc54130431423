// SPDX-License-Identifier: Apache-2.0
// `gnmr tune` as a user runs it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/program_run.h"

namespace gnmr {
namespace {

using nlohmann::json;
using testing::golden;
using testing::has;
using testing::ProgramRun;
using testing::run_gnmr;
using testing::Scratch;

/// Twelve units of steady norms, one of which goes wrong for five steps; the truth, and errors that show it.
struct SmallRun {
  SmallRun() {
    std::string head = "step";
    for (int unit = 0; unit < 12; ++unit) head += ",u" + std::to_string(unit);
    std::string norm_rows = head + "\n", truth_rows = head + "\n", error_rows = "step,u3,u5\n";
    for (int step = 0; step < 120; ++step) {
      const bool faulty = step >= 60 && step < 65;
      norm_rows += std::to_string(step);
      truth_rows += std::to_string(step);
      for (int unit = 0; unit < 12; ++unit) {
        const double noise = 1 + 0.02 * ((step * 7 + unit * 5) % 11 - 5);
        norm_rows += "," + std::to_string(noise * (faulty && unit == 3 ? 4 : 1));
        truth_rows += faulty && unit == 3 ? ",1" : ",0";
      }
      norm_rows += "\n";
      truth_rows += "\n";
      if (step % 2 == 0) error_rows += std::to_string(step) + (faulty ? ",0.5," : ",0.05,nan") + "\n";
    }
    norms = files.write("norms.csv", norm_rows);
    truth = files.write("truth.csv", truth_rows);
    errors = files.write("errors.csv", error_rows);
  }
  Scratch files;
  std::string norms, truth, errors;
};

TEST(Tune, TheGivenOptionsComeToWhatAReplayComesTo) {
  const std::string trace = golden("random_default.csv");
  const ProgramRun tuned = run_gnmr("tune " + trace + " --json");
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const json result = json::parse(tuned.out);
  const json replay = json::parse(run_gnmr("replay " + trace + " --json").out);
  const json& given = result["replays"][0];
  EXPECT_TRUE(given["given"].get<bool>());
  EXPECT_EQ(result["steps"], replay["steps"]);
  for (const char* const key : {"risks", "risks_per_thousand_unit_steps", "recoveries", "denials", "futile",
                                "mean_share_in_recovery", "peak_share_in_recovery"}) {
    EXPECT_EQ(given[key], replay[key]) << key;
  }
  EXPECT_LE(result["replays"].size(), 200U);
}

TEST(Tune, TruthDecidesAndTheFileCanBeUsed) {
  const SmallRun run;
  const std::string out = run.files.path("options.json"), page = run.files.path("tune.html");
  const ProgramRun tuned =
      run_gnmr("tune --trace " + run.norms + " --truth " + run.truth + " --write " + out + " --out " + page);
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_TRUE(has(tuned.out, "the highest F-score of ")) << tuned.out;
  EXPECT_TRUE(has(tuned.out, "recall")) << tuned.out;
  const json replay =
      json::parse(run_gnmr("replay " + run.norms + " --truth " + run.truth + " --config " + out + " --json").out);
  EXPECT_EQ(replay["recall"], 1.0);
  EXPECT_EQ(replay["precision"], 1.0);
  const std::string html = testing::read_file(page);
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  for (const char* const part : {"Options for norms.csv", "Faults met", "All replays", "F-score"}) {
    EXPECT_TRUE(has(html, part)) << part;
  }
  // Both may be written again, but nothing else is replaced.
  const std::string again = "tune " + run.norms + " --truth " + run.truth;
  EXPECT_EQ(run_gnmr(again + " --write " + out + " --out " + page + " -q").status, 0);
  EXPECT_EQ(run_gnmr(again + " --out " + out).status, 2);
  EXPECT_EQ(run_gnmr(again + " --write " + page).status, 2);
  EXPECT_EQ(run_gnmr(again + " --write " + run.norms).status, 2);
}

TEST(Tune, WhatAFileNamesGoesOnToTheFileThatIsWritten) {
  const SmallRun run;
  const std::string out = run.files.path("options.json");
  const auto written = [&](const std::string& flags) {
    const ProgramRun tuned = run_gnmr("tune " + run.norms + " --truth " + run.truth + " -q --write " + out + flags);
    EXPECT_EQ(tuned.status, 0) << tuned.err;
    // The recipe is looked at last: nothing was wrong with the options.
    const ProgramRun train = run_gnmr("train --recipe fp9 --config " + out);
    EXPECT_TRUE(has(train.err, "fp9")) << train.err;
    return json::parse(testing::read_file(out));
  };
  const json guarded = written(" --config " + run.files.write("given.json", R"({"guard":"skip","max_trials":5})"));
  EXPECT_EQ(guarded["guard"], "skip");
  EXPECT_EQ(guarded["max_trials"], 5);
  EXPECT_EQ(guarded["error_factor"], 4);
  const json paper = written(" --preset paper");
  EXPECT_EQ(paper["selector"], "norms");
  EXPECT_FALSE(paper.contains("error_factor")) << "train would refuse it";
  EXPECT_EQ(written(" --config " + out)["selector"], "norms");
}

TEST(Tune, EvidenceMayHaveFewerUnitsAndSteps) {
  const SmallRun run;
  const ProgramRun tuned = run_gnmr("tune " + run.norms + " --truth " + run.truth + " --evidence " + run.errors +
                                    " --expected-error 0.04 --json");
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const json result = json::parse(tuned.out);
  EXPECT_TRUE(result["why"].contains("evidence"));
  bool found = false;
  for (const json& replay : result["replays"]) {
    if (replay["selector"] != "evidence" || !replay["given"].get<bool>()) continue;
    found = true;
    EXPECT_EQ(replay["recall"], 1.0);
    EXPECT_EQ(replay["precision"], 1.0);
  }
  EXPECT_TRUE(found);
  const ProgramRun text = run_gnmr("tune " + run.norms + " --evidence " + run.errors);
  EXPECT_TRUE(has(text.out, "thresholds of errors: ")) << text.out;
}

TEST(Tune, AHealthyRun) {
  const SmallRun run;
  const ProgramRun tuned = run_gnmr("tune " + golden("calm.csv") + " --healthy --rate 0.1");
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_TRUE(has(tuned.out, "in a run that was healthy")) << tuned.out;
  EXPECT_TRUE(has(tuned.out, "lock_steps and max_o are as given")) << tuned.out;
  // The same bytes however many threads.
  EXPECT_EQ(run_gnmr("tune " + run.norms + " --all --threads 1").out,
            run_gnmr("tune " + run.norms + " --all --threads 3").out);
}

TEST(Tune, ReadsStandardInputAndOtherLogs) {
  const ProgramRun piped = run_gnmr("tune - --json", "gzip -c " + golden("spike.csv") + " |");
  ASSERT_EQ(piped.status, 0) << piped.err;
  EXPECT_EQ(piped.out, run_gnmr("tune " + golden("spike.csv") + " --json").out);
  const char* const data = std::getenv("GNMR_DATA_DIR");
  if (data == nullptr) GTEST_SKIP() << "GNMR_DATA_DIR is not set: real logs are not read";
  const std::string faults = std::string(data) + "/traces/faults/";
  const ProgramRun real =
      run_gnmr("tune " + faults + "over.norms.csv --truth " + faults + "over.truth.csv --evidence " + faults +
               "over.evidence.csv --expected-error 0.053 --json");
  ASSERT_EQ(real.status, 0) << real.err;
  EXPECT_TRUE(json::parse(real.out)["why"].contains("evidence"));
}

TEST(Tune, WrongFlagsAndFiles) {
  const SmallRun run;
  EXPECT_EQ(run_gnmr("tune").status, 2);
  EXPECT_EQ(run_gnmr("tune " + run.norms + " --healthy --truth " + run.truth).status, 2);
  EXPECT_EQ(run_gnmr("tune " + run.norms + " --rate -1").status, 2);
  EXPECT_EQ(run_gnmr("tune " + run.norms + " --expected-error 0.1").status, 2);
  EXPECT_EQ(run_gnmr("tune " + run.norms + " --tau 0.5").status, 2);
  EXPECT_EQ(run_gnmr("tune " + run.files.path("none.csv")).status, 3);
  EXPECT_EQ(run_gnmr("tune " + run.norms + " --evidence " + golden("spike.csv")).status, 3);
  const ProgramRun empty = run_gnmr("tune " + run.files.write("head.csv", "step,a\n"));
  EXPECT_EQ(empty.status, 3);
  EXPECT_TRUE(has(empty.err, "no steps")) << empty.err;
  EXPECT_EQ(run_gnmr("tune " + run.norms + " --write " + run.files.path("no/such/folder.json")).status, 4);
  EXPECT_TRUE(has(run_gnmr("--help").out, "tune"));
}

}  // namespace
}  // namespace gnmr
