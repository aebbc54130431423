// SPDX-License-Identifier: Apache-2.0
// `gnmr lab`, without training anything: there is no engine where GNMR_ENGINE points to nothing.
#include <gtest/gtest.h>

#include <filesystem>

#include "apps/program_run.h"

namespace gnmr {
namespace {

using testing::ProgramRun;
using testing::run_gnmr;
using testing::Scratch;

ProgramRun run_without_engine(const std::string& arguments) { return run_gnmr(arguments, "GNMR_ENGINE=/nowhere"); }

TEST(LabCommand, HelpNamesRegimesAndArms) {
  const ProgramRun run = run_gnmr("lab stress --help");
  EXPECT_EQ(run.status, 0);
  for (const char* word : {"int4-act", "fp8-stale-100", "ends-high", "--resume", "NAME=VALUE"}) {
    EXPECT_NE(run.out.find(word), std::string::npos) << word;
  }
}

TEST(LabCommand, WrongFlagsAreNamedBeforeAnythingIsWritten) {
  const Scratch scratch;
  const auto refusal = [&](const std::string& flags) {
    const ProgramRun run = run_gnmr("lab stress --out " + scratch.path("out") + " " + flags);
    EXPECT_EQ(run.status, 2) << flags;
    return run.err;
  };
  EXPECT_NE(refusal("").find("--regime"), std::string::npos);
  EXPECT_NE(refusal("--regime int5").find("int5"), std::string::npos);
  EXPECT_NE(refusal("--regime nvfp4 --arms random").find("gnmr"), std::string::npos);
  EXPECT_NE(refusal("--regime nvfp4 --train seed=3").find("sets it itself"), std::string::npos);
  EXPECT_NE(refusal("--regime nvfp4 --train lr=-3").find("lr"), std::string::npos);
  EXPECT_NE(refusal("--regime nvfp4 --train nonsense=3").find("nonsense"), std::string::npos);
  EXPECT_NE(refusal("--regime nvfp4 --max-o -1").find("max_o"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(scratch.path("out")));
}

TEST(LabCommand, CellsThatFailAreToldAndTheSuiteCanGoOn) {
  const Scratch scratch;
  const std::string command = "lab stress --regime fp8-stale-32 --arms high low --seeds 4 --out " + scratch.path("out");
  ProgramRun run = run_without_engine(command);
  EXPECT_EQ(run.status, 3);
  EXPECT_NE(run.out.find("low-seed4 FAILED: exit status 3"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("engine is not there"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("0 of 1"), std::string::npos) << run.out;
  EXPECT_TRUE(std::filesystem::exists(scratch.path("out/fp8-stale-32/recipe.json")));
  run = run_without_engine(command);
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("--resume"), std::string::npos) << run.err;
  EXPECT_EQ(run_without_engine(command + " --resume").status, 3);
  run = run_without_engine(command + " --resume --steps 7");
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("(steps)"), std::string::npos) << run.err;
}

TEST(LabCommand, RecipesOfRegimesAreRecipes) {
  const Scratch scratch;
  run_without_engine("lab stress --regime fp8-stale-100 --arms high --seeds 0 --out " + scratch.path("out"));
  const ProgramRun run = run_gnmr("recipes " + scratch.path("out/fp8-stale-100/recipe.json"));
  EXPECT_EQ(run.status, 0) << run.err;
}

TEST(LabCommand, FaultsHelpNamesFaultsWithTheirSitesAndArms) {
  const ProgramRun run = run_gnmr("lab faults --help");
  EXPECT_EQ(run.status, 0);
  for (const char* word : {"wrong-rows         after-cast", "KIND:once", "olmo-skip", "trial-no-patrol", "--collect"}) {
    EXPECT_NE(run.out.find(word), std::string::npos) << word;
  }
}

TEST(LabCommand, WrongFlagsOfFaultsAreNamedBeforeAnythingIsWritten) {
  const Scratch scratch;
  const auto refusal = [&](const std::string& flags) {
    const ProgramRun run = run_gnmr("lab faults --out " + scratch.path("out") + " " + flags);
    EXPECT_NE(run.status, 0) << flags;
    return run.err;
  };
  EXPECT_NE(refusal("").find("--fault"), std::string::npos);
  EXPECT_NE(refusal("--fault satruate").find("satruate"), std::string::npos);
  EXPECT_NE(refusal("--fault saturate --arms random").find("trial"), std::string::npos);
  EXPECT_NE(refusal("--fault saturate --train selector=norms").find("sets it itself"), std::string::npos);
  EXPECT_NE(refusal("--fault saturate --options " + scratch.path("nothing.json")).find("nothing.json"),
            std::string::npos);
  EXPECT_NE(refusal("--from " + scratch.path("nothing.jsonl")).find("nothing.jsonl"), std::string::npos);
  EXPECT_NE(refusal("--from a --fault saturate").find("--from"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(scratch.path("out")));
}

TEST(LabCommand, ASuiteAFaultInAFolderOfItsOwn) {
  const Scratch scratch;
  const ProgramRun run = run_without_engine(
      "lab faults --fault saturate flush:once none --arms none trial --seeds 1 --out " + scratch.path("out"));
  EXPECT_EQ(run.status, 3);
  EXPECT_NE(run.err.find("INJECTED"), std::string::npos) << run.err;
  for (const char* folder : {"saturate", "flush-once", "none"}) {
    EXPECT_TRUE(std::filesystem::exists(scratch.path("out/" + std::string(folder) + "/suite.json"))) << folder;
  }
  EXPECT_NE(run.out.find("trial-seed1 FAILED"), std::string::npos) << run.out;
}

TEST(LabCommand, TablesAreMadeAgainFromKeptResults) {
  const Scratch scratch;
  const auto line = [](const std::string& arm, const std::string& loss) {
    return R"({"kind":"cell","version":1,"fault":"saturate","settings":{"steps":"300"},"cell":{"version":1,"arm":")" +
           arm + R"(","seed":0,"run":"r","steps":300,"units":28,"loss":)" + loss +
           R"(,"train_loss_tail":1,"share_mean":0,"share_peak":0,"high_mean":0,"risks_per_thousand":0,"admissions":0,)"
           R"("skipped_updates":0,"step_ms":10}})"
           "\n";
  };
  const std::string first = scratch.write("first.jsonl", line("trial", "1.25"));
  const std::string second = scratch.write("second.jsonl", line("none", "2") + line("high", "1"));
  const std::string kept = scratch.path("kept.jsonl");
  ProgramRun run =
      run_gnmr("lab faults --from " + first + " " + second + " --collect " + kept + " --out " + scratch.path("out"));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("saturate (cast)"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("75% (1 seed)"), std::string::npos) << run.out;
  const std::string tables = testing::read_file(scratch.path("out/summary.md"));
  EXPECT_NE(tables.find("| trial | 75% (1 seed) |"), std::string::npos) << tables;
  run = run_gnmr("lab faults --from " + kept + " --collect " + scratch.path("again.jsonl"));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(testing::read_file(scratch.path("again.jsonl")), testing::read_file(kept));
}

TEST(LabCommand, TheDemoSaysThatFaultsAreInjected) {
  const Scratch scratch;
  const ProgramRun run = run_without_engine("lab demo --out " + scratch.path("demo"));
  EXPECT_EQ(run.status, 3);
  EXPECT_NE(run.err.find("INJECTED"), std::string::npos) << run.err;
  EXPECT_NE(testing::read_file(scratch.path("demo/suite.json")).find("INJECTED"), std::string::npos);
}

}  // namespace
}  // namespace gnmr
