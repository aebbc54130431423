// SPDX-License-Identifier: Apache-2.0
// `gnmr explain` as a user runs it.
#include <gtest/gtest.h>

#include <filesystem>
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

const std::string kTrial =
    R"({"kind":"trial","step":3,"rerun":"trial","verdict":"numeric","units":["a"],"places":["forward"],"errors":[0.5],)"
    R"("excesses":[4],"losses":[3.5,2.5],"norms":[8,2],"distance":0.75,"seconds":0.25,"applied":true})"
    "\n";

TEST(Explain, AReplaysJournalFromAFileAFolderAndAPipe) {
  const Scratch files;
  std::filesystem::create_directory(files.path("run"));
  const std::string journal = files.path("run/journal.jsonl");
  ASSERT_EQ(run_gnmr("replay " + golden("random_default.csv") + " -q --journal " + journal).status, 0);
  const ProgramRun file = run_gnmr("explain " + journal + " --json --limit 0");
  ASSERT_EQ(file.status, 0) << file.err;
  const json story = json::parse(file.out);
  const json replay = json::parse(run_gnmr("replay " + golden("random_default.csv") + " --json").out);
  EXPECT_EQ(story["summary"]["recoveries"], replay["recoveries"]);
  EXPECT_EQ(story["summary"]["denials"], replay["denials"]);
  EXPECT_EQ(story["summary"]["risks"], replay["risks"]);
  EXPECT_EQ(story["summary"]["steps"], replay["steps"]);
  EXPECT_DOUBLE_EQ(story["summary"]["mean_share_in_recovery"].get<double>(),
                   replay["mean_share_in_recovery"].get<double>());
  EXPECT_EQ(run_gnmr("explain - --json --limit 0", "gzip -c " + journal + " |").out, file.out);
  const ProgramRun folder = run_gnmr("explain " + files.path("run") + " --limit 3");
  ASSERT_EQ(folder.status, 0) << folder.err;
  EXPECT_TRUE(has(folder.out, "the 3 most important of ")) << folder.out;
  EXPECT_TRUE(has(folder.out, "No step was run again")) << folder.out;
}

TEST(Explain, ATrial) {
  const Scratch files;
  const std::string event = R"({"kind":"event","step":3,"unit":"a","event":"admitted","left":10})"
                            "\n";
  const std::string step =
      R"({"kind":"step","step":3,"sampled":2,"risks":0,"common":false,"recovered":1,"cost_share":0.5})"
      "\n";
  const std::string journal = files.write("j.jsonl", kTrial + step + event);
  const ProgramRun run = run_gnmr("explain " + journal);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(has(run.out, "step 3: numeric: a, forward: error 0.5, 4 times its limit of 0.125")) << run.out;
  EXPECT_TRUE(has(run.out, "a by its error: was in high precision from step 4")) << run.out;
  EXPECT_TRUE(has(run.out, "1 step was run again: 1 helpful")) << run.out;
  EXPECT_TRUE(has(run.out, "What each recovery was worth and cost (1 recovery):")) << run.out;
  EXPECT_TRUE(has(run.out, "4 on   a           numeric  forward  helpful    open  3.5 → 2.5      0.75     0.25"))
      << run.out;
  EXPECT_TRUE(has(run_gnmr("explain " + journal + " --unit b").out, "0 episodes with units b"));
  EXPECT_TRUE(has(run_gnmr("explain " + journal + " --from 3 --to 3").out, "1 episode from step 3 to step 3"));
}

TEST(Explain, NamesCannotSteerATerminal) {
  const Scratch files;
  const std::string journal = files.write("j.jsonl", R"({"kind":"note","text":"\u001b[2Jgone"})"
                                                     "\n");
  EXPECT_FALSE(has(run_gnmr("explain " + journal).out, "\x1b"));
}

TEST(Explain, WhatCannotBeExplained) {
  const Scratch files;
  EXPECT_EQ(run_gnmr("explain").status, 2);
  EXPECT_EQ(run_gnmr("explain x --from 5 --to 4").status, 2);
  EXPECT_EQ(run_gnmr("explain x --limit -1").status, 2);
  EXPECT_EQ(run_gnmr("explain " + files.path("none")).status, 3);
  const ProgramRun bad = run_gnmr("explain " + files.write("bad.jsonl", kTrial + "nonsense\n" + kTrial));
  EXPECT_EQ(bad.status, 3);
  EXPECT_TRUE(has(bad.err, "bad.jsonl: line 2")) << bad.err;
  std::filesystem::create_directory(files.path("folder"));
  EXPECT_EQ(run_gnmr("explain " + files.path("folder")).status, 3);
  files.write("folder/run.json", "{\"version\":1}");
  const ProgramRun without = run_gnmr("explain " + files.path("folder"));
  EXPECT_EQ(without.status, 3);
  EXPECT_TRUE(has(without.err, "no journal.jsonl")) << without.err;
  files.write("folder/suite.json", "{}");
  EXPECT_TRUE(has(run_gnmr("explain " + files.path("folder")).err, "a suite of runs"));
  EXPECT_TRUE(has(run_gnmr("--help").out, "explain"));
}

}  // namespace
}  // namespace gnmr
