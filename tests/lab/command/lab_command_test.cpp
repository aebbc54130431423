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

TEST(LabCommand, TheDemoSaysThatFaultsAreInjected) {
  const Scratch scratch;
  const ProgramRun run = run_without_engine("lab demo --out " + scratch.path("demo"));
  EXPECT_EQ(run.status, 3);
  EXPECT_NE(run.err.find("INJECTED"), std::string::npos) << run.err;
  EXPECT_NE(testing::read_file(scratch.path("demo/suite.json")).find("INJECTED"), std::string::npos);
}

}  // namespace
}  // namespace gnmr
