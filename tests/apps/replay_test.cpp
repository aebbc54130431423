// SPDX-License-Identifier: Apache-2.0
// `gnmr replay` as a user runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "apps/program_run.h"

namespace gnmr {
namespace {

using nlohmann::json;
using testing::golden;
using testing::ProgramRun;
using testing::run_gnmr;
using testing::Scratch;

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GNMR_GOLDEN_DIR)) {
    const std::string name = entry.path().stem().string();
    const bool by_errors = name.ends_with(".errors") || std::filesystem::exists(golden(name + ".errors.csv"));
    if (entry.path().extension() == ".csv" && !by_errors) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

class ReplayGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(ReplayGolden, GivesItsDecisions) {
  const std::string base = golden(GetParam());
  std::string arguments = "replay --trace " + base + ".csv --config " + base + ".options.json --decisions -";
  if (std::filesystem::exists(base + ".units.json")) arguments += " --units " + base + ".units.json";
  const ProgramRun run = run_gnmr(arguments);
  ASSERT_EQ(run.status, 0) << run.err;
  const std::vector<json> got = lines_of(run.out);
  const std::vector<json> want = lines_of(testing::read_file(base + ".decisions.jsonl"));
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], want[i]) << "line " << i + 1;
}

INSTANTIATE_TEST_SUITE_P(Traces, ReplayGolden, ::testing::ValuesIn(golden_names()),
                         [](const auto& given) { return given.param; });

TEST(Replay, ReadsStandardInputPlainAndCompressed) {
  const ProgramRun direct = run_gnmr("replay " + golden("spike.csv") + " --json");
  ASSERT_EQ(direct.status, 0) << direct.err;
  EXPECT_EQ(run_gnmr("replay - --json", "cat " + golden("spike.csv") + " |").out, direct.out);
  EXPECT_EQ(run_gnmr("replay - --json", "gzip -c " + golden("spike.csv") + " |").out, direct.out);
}

TEST(Replay, SummaryAgreesWithTheDecisions) {
  const std::string trace = golden("random_default.csv");
  const ProgramRun run = run_gnmr("replay " + trace + " --json");
  const json summary = json::parse(run.out);
  const std::vector<json> decisions = lines_of(run_gnmr("replay -q " + trace + " --decisions -").out);
  std::size_t admitted = 0, denied = 0, futile = 0, common = 0, recovered = 0, peak = 0;
  for (const json& decision : decisions) {
    admitted += decision["admitted"].size();
    denied += decision["denied"].size();
    futile += decision["futile"].size();
    common += decision["common"].get<bool>() ? 1U : 0U;
    recovered += decision["recovered"].size();
    peak = std::max(peak, decision["recovered"].size());
  }
  const auto units = summary["units"].get<double>();
  EXPECT_GT(admitted, 0u);
  EXPECT_EQ(summary["steps"], decisions.size());
  EXPECT_EQ(summary["recoveries"], admitted);
  EXPECT_EQ(summary["denials"], denied);
  EXPECT_EQ(summary["futile"], futile);
  EXPECT_EQ(summary["common_steps"], common);
  EXPECT_DOUBLE_EQ(summary["mean_share_in_recovery"].get<double>(),
                   static_cast<double>(recovered) / (units * static_cast<double>(decisions.size())));
  EXPECT_DOUBLE_EQ(summary["peak_share_in_recovery"].get<double>(), static_cast<double>(peak) / units);
  EXPECT_LE(summary["most_often_at_risk"].size(), 10u);
}

TEST(Replay, JournalHoldsWhatTheDecisionsSay) {
  const Scratch scratch;
  const std::string journal = scratch.path("journal.jsonl");
  const ProgramRun run = run_gnmr("replay " + golden("random_default.csv") + " --decisions - --journal " + journal);
  ASSERT_EQ(run.status, 0) << run.err;
  std::size_t admitted = 0, journaled = 0, steps = 0;
  for (const json& decision : lines_of(run.out)) admitted += decision["admitted"].size();
  for (const json& line : lines_of(testing::read_file(journal))) {
    steps += line["kind"] == "step" ? 1U : 0U;
    journaled += line["kind"] == "event" && line["event"] == "admitted" ? 1U : 0U;
  }
  EXPECT_EQ(admitted, journaled);
  EXPECT_EQ(steps, lines_of(run.out).size());
}

TEST(Replay, BadRowsNameLineAndColumnAndWhatCameBeforeIsWritten) {
  const Scratch scratch;
  const std::string trace = scratch.write("bad.csv", "step,a,b\n1,1,1\n2,1,oops\n");
  const ProgramRun run = run_gnmr("replay " + trace + " --decisions -");
  EXPECT_EQ(run.status, 3);
  EXPECT_NE(run.err.find("bad.csv"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("line 3"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("column 3"), std::string::npos) << run.err;
  EXPECT_EQ(lines_of(run.out).size(), 1u);
}

TEST(Replay, ExitCodesAreAsDocumented) {
  const Scratch scratch;
  const std::string trace = golden("spike.csv");
  EXPECT_EQ(run_gnmr("replay " + trace + " -q").status, 0);
  EXPECT_EQ(run_gnmr("--version").status, 0);
  EXPECT_EQ(run_gnmr("replay --help").status, 0);
  EXPECT_EQ(run_gnmr("").status, 2);
  EXPECT_EQ(run_gnmr("replay").status, 2);
  EXPECT_EQ(run_gnmr("replay " + trace + " --no-such-flag").status, 2);
  EXPECT_EQ(run_gnmr("replay " + trace + " --beta 1").status, 2);
  EXPECT_EQ(run_gnmr("replay " + trace + " --beta one").status, 2);
  EXPECT_EQ(run_gnmr("replay " + trace + " --preset papre").status, 2);
  EXPECT_EQ(run_gnmr("replay " + trace + " --format papre").status, 2);
  EXPECT_EQ(run_gnmr("replay " + trace + " --lag 1 --lock-steps 1").status, 2);
  EXPECT_EQ(run_gnmr("replay " + scratch.path("none.csv")).status, 3);
  EXPECT_EQ(run_gnmr("replay " + trace + " --config " + scratch.write("o.json", "{\"tua\":1}")).status, 3);
  EXPECT_EQ(run_gnmr("replay " + trace + " --units " + scratch.write("u.json", "{}")).status, 3);
  EXPECT_EQ(run_gnmr("replay " + trace + " --load-state " + scratch.write("s", "not a state")).status, 3);
  EXPECT_EQ(run_gnmr("replay " + trace + " --decisions " + scratch.path("no/such/folder")).status, 4);
}

TEST(Replay, AFullDiskIsAnOutputError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full here";
  const std::string trace = golden("long_run.csv");
  EXPECT_EQ(run_gnmr("replay " + trace + " --decisions /dev/full").status, 4);
  EXPECT_EQ(run_gnmr("replay " + trace + " --journal /dev/full").status, 4);
}

TEST(Replay, AnOutputNeverReplacesAnInput) {
  const Scratch scratch;
  const std::string text = testing::read_file(golden("spike.csv"));
  const std::string trace = scratch.write("in.csv", text);
  for (const char* const flag : {"--decisions", "--journal", "--signals", "--save-state"}) {
    EXPECT_EQ(run_gnmr("replay -q " + trace + " " + flag + " " + trace).status, 2) << flag;
    EXPECT_EQ(testing::read_file(trace), text) << flag;
  }
  const std::string out = scratch.path("out.jsonl");
  EXPECT_EQ(run_gnmr("replay -q " + trace + " --decisions " + out + " --journal " + out).status, 2);
  const std::string state = scratch.path("state");
  EXPECT_EQ(run_gnmr("replay -q " + trace + " --save-state " + state).status, 0);
  EXPECT_EQ(run_gnmr("replay -q " + trace + " --load-state " + state + " --save-state " + state).status, 0);
}

TEST(Replay, WhatCannotBeSaidIsNoCrash) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full here";
  const auto status = [](const std::string& arguments) {
    return WEXITSTATUS(std::system((GNMR_PROGRAM " " + arguments).c_str()));
  };
  EXPECT_EQ(status("replay /nowhere 2>/dev/full"), 3);
  EXPECT_EQ(status("replay /nowhere 2>&-"), 3);
  EXPECT_EQ(status("replay " + golden("spike.csv") + " --live 2>/dev/full >/dev/null"), 0);
  EXPECT_EQ(status("replay " + golden("spike.csv") + " >/dev/full 2>/dev/null"), 4);
  EXPECT_EQ(status("options >/dev/full 2>/dev/null"), 4);
}

TEST(Replay, NamesCannotCommandATerminal) {
  const Scratch scratch;
  std::string text = "step,\"\x1b[2Jevil\nname\"\n";
  for (int step = 0; step < 40; ++step) text += std::to_string(step) + (step == 35 ? ",nan\n" : ",1\n");
  const ProgramRun run = run_gnmr("replay --live " + scratch.write("evil.csv", text));
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ((run.out + run.err).find('\x1b'), std::string::npos);
  EXPECT_NE(run.out.find("?[2Jevil?name"), std::string::npos) << run.out;
}

TEST(Replay, StepsOfTheTruthBeyondTheTraceAreTold) {
  const Scratch scratch;
  const std::string trace = scratch.write("t.csv", "step,a\n1,1\n2,1\n");
  const ProgramRun run =
      run_gnmr("replay " + trace + " --truth " + scratch.write("x.csv", "step,a\n1,0\n2,0\n3,1\n4,1\n"));
  EXPECT_EQ(run.status, 0);
  EXPECT_NE(run.err.find("2 steps of the truth"), std::string::npos) << run.err;
  EXPECT_EQ(run_gnmr("replay " + trace + " --truth " + scratch.write("y.csv", "step,a\n1,0\n2,0\n3,x\n")).status, 3);
}

TEST(Replay, FlagsWinOverTheFileAndTheFileOverThePreset) {
  const Scratch scratch;
  const std::string config = scratch.write("o.json", "{\"tau\":3,\"window\":7,\"preset\":\"paper\"}");
  const json options = json::parse(run_gnmr("options --tau 1.5 --config " + config).out);
  EXPECT_EQ(options["tau"], 1.5);
  EXPECT_EQ(options["window"], 7);
  EXPECT_EQ(options["mean_cap"], 0);
  const json other = json::parse(run_gnmr("options --preset default --config " + config).out);
  EXPECT_EQ(other["tau"], 3);
  EXPECT_EQ(other["mean_cap"], 2);
}

TEST(Replay, HelpNamesEveryOption) {
  const std::string help = run_gnmr("replay --help").out;
  const json options = json::parse(run_gnmr("options").out);
  EXPECT_EQ(options.size(), 30u);
  for (const auto& [name, value] : options.items()) {
    std::string flag = "--" + name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    EXPECT_NE(help.find(flag), std::string::npos) << flag;
  }
  EXPECT_NE(help.find("Exit status"), std::string::npos);
}

TEST(Replay, GoesOnFromASavedState) {
  const Scratch scratch;
  const std::string text = testing::read_file(golden("random_default.csv"));
  std::vector<std::string> rows;
  std::istringstream stream(text);
  for (std::string row; std::getline(stream, row);) rows.push_back(row + "\n");
  const std::size_t half = rows.size() / 2;
  std::string first = rows[0], second = rows[0];
  for (std::size_t i = 1; i < rows.size(); ++i) (i < half ? first : second) += rows[i];
  const std::string state = scratch.path("state.gnmr");
  const ProgramRun a = run_gnmr("replay -q " + scratch.write("a.csv", first) + " --decisions - --save-state " + state);
  const ProgramRun b = run_gnmr("replay -q " + scratch.write("b.csv", second) + " --decisions - --load-state " + state);
  ASSERT_EQ(a.status, 0) << a.err;
  ASSERT_EQ(b.status, 0) << b.err;
  EXPECT_EQ(a.out + b.out, run_gnmr("replay -q " + golden("random_default.csv") + " --decisions -").out);
}

TEST(Replay, TruthAddsRecallPrecisionAndDelay) {
  const std::string run = std::string(GNMR_EXAMPLES_DIR) + "/fault_run/";
  const json summary =
      json::parse(run_gnmr("replay " + run + "norms.csv --truth " + run + "truth.csv --max-o 3 --json").out);
  EXPECT_EQ(summary["faults"], 11);
  EXPECT_EQ(summary["faults_found"], 11);
  EXPECT_EQ(summary["common_steps"], 2);
  EXPECT_GT(summary["precision"].get<double>(), 0.8);
  const json paper = json::parse(
      run_gnmr("replay " + run + "norms.csv --truth " + run + "truth.csv --max-o 3 --json --preset paper").out);
  EXPECT_LT(paper["recall"].get<double>(), 1.0);
}

TEST(Replay, TruthOfOtherUnitsIsRefused) {
  const Scratch scratch;
  const std::string trace = scratch.write("t.csv", "step,a,b\n1,1,1\n");
  EXPECT_EQ(run_gnmr("replay " + trace + " --truth " + scratch.write("x.csv", "step,a\n1,0\n")).status, 3);
  EXPECT_EQ(run_gnmr("replay " + trace + " --truth " + scratch.write("y.csv", "step,a,b,c\n1,0,0,0\n")).status, 3);
  EXPECT_EQ(run_gnmr("replay -q " + trace + " --truth " + scratch.write("z.csv", "step,b,a\n1,0,0\n")).status, 0);
}

constexpr const char* kTwoRuns =
    "\"Step\",\"small - a/grad_norm\",\"small - b/grad_norm\",\"large - a/grad_norm\",\"large - b/grad_norm\"\n"
    "1,1,1,2,2\n2,1,1,2,nan\n3,,,2,2\n";

TEST(Replay, RunsOfAnExportAreReplayedOneByOne) {
  const Scratch scratch;
  const std::string trace = scratch.write("export.csv", kTwoRuns);
  const ProgramRun each = run_gnmr("replay " + trace + " --json");
  ASSERT_EQ(each.status, 0) << each.err;
  const std::vector<json> summaries = lines_of(each.out);
  ASSERT_EQ(summaries.size(), 2u);
  EXPECT_EQ(summaries[0]["run"], "small");
  EXPECT_EQ(summaries[0]["units"], 2);
  EXPECT_EQ(summaries[0]["steps"], 2);
  EXPECT_EQ(summaries[1]["run"], "large");
  EXPECT_EQ(summaries[1]["steps"], 3);
  EXPECT_EQ(summaries[1]["non_finite"], 1);
  EXPECT_NE(run_gnmr("replay " + trace).out.find("large\n"), std::string::npos);
  const ProgramRun one = run_gnmr("replay " + trace + " --json --run large");
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(json::parse(one.out)["steps"], 3);
  EXPECT_FALSE(json::parse(one.out).contains("run"));
}

TEST(Replay, WhatIsForOneRunNeedsItsName) {
  const Scratch scratch;
  const std::string trace = scratch.write("export.csv", kTwoRuns);
  const std::string out = scratch.path("out.jsonl");
  const ProgramRun unnamed = run_gnmr("replay " + trace + " --decisions " + out);
  EXPECT_EQ(unnamed.status, 2);
  EXPECT_NE(unnamed.err.find("--run, such as small"), std::string::npos) << unnamed.err;
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_EQ(run_gnmr("replay " + trace + " --run small --decisions " + out).status, 0);
  const ProgramRun wrong = run_gnmr("replay " + trace + " --run smal");
  EXPECT_EQ(wrong.status, 3);
  EXPECT_NE(wrong.err.find("there are: small, large; did you mean 'small'?"), std::string::npos) << wrong.err;
  // A pipe is read once.
  const ProgramRun pipe = run_gnmr("replay -", "cat " + trace + " |");
  EXPECT_EQ(pipe.status, 3);
  EXPECT_NE(pipe.err.find("has 2 runs, name one with --run: small, large"), std::string::npos) << pipe.err;
  EXPECT_EQ(run_gnmr("replay - --run large -q", "cat " + trace + " |").status, 0);
  EXPECT_EQ(run_gnmr("replay /dev/stdin --run large -q", "cat " + trace + " |").status, 0);
  EXPECT_EQ(run_gnmr("tune " + trace + " -q").status, 3);
  EXPECT_EQ(run_gnmr("tune " + trace + " --run small -q").status, 0);
}

TEST(Replay, FoldersOfTensorBoardRuns) {
  const std::string folder = std::string(GNMR_TEST_ASSETS_DIR) + "/tensorboard";
  const ProgramRun each = run_gnmr("replay " + folder + " --json --allow-restart");
  ASSERT_EQ(each.status, 0) << each.err;
  EXPECT_EQ(lines_of(each.out).size(), 3u);
  EXPECT_EQ(run_gnmr("replay " + folder + " --run simple -q").status, 0);
  // A run without norms is left out; only where all are without is that an error.
  const Scratch scratch;
  const std::string file = "/events.out.tfevents.0000000001.host";
  for (const char* const name : {"runs/eval", "runs/train"}) std::filesystem::create_directories(scratch.path(name));
  std::filesystem::create_directories(scratch.path("runs/other"));
  std::filesystem::copy_file(folder + "/simple" + file, scratch.path("runs/train") + file);
  scratch.write("runs/eval" + file, "");
  scratch.write("runs/other" + file, "");
  const ProgramRun some = run_gnmr("replay " + scratch.path("runs") + " --json");
  ASSERT_EQ(some.status, 0) << some.err;
  EXPECT_EQ(lines_of(some.out).size(), 1u);
  EXPECT_NE(some.err.find("run eval has no gradient norms and is left out"), std::string::npos) << some.err;
  std::filesystem::remove_all(scratch.path("runs/train"));
  EXPECT_EQ(run_gnmr("replay " + scratch.path("runs")).status, 3);
}

TEST(Replay, ALargeFolderIsNotSearched) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch.path("a/b/c/d/e/f/g/h"));
  scratch.write("a/b/c/d/e/f/g/h/events.out.tfevents.1", "");
  const ProgramRun run = run_gnmr("replay " + scratch.path("a"));
  EXPECT_EQ(run.status, 3);
  EXPECT_NE(run.err.find("4 folders deep); name the folder of the run"), std::string::npos) << run.err;
}

TEST(Replay, AnUnknownLogListsWhatCanBeRead) {
  const Scratch scratch;
  const ProgramRun run = run_gnmr("replay " + scratch.write("x.log", "epoch;loss\n1;2\n"));
  EXPECT_EQ(run.status, 3);
  EXPECT_NE(run.err.find("x.log: line 1: not a line of a trace or log that can be read: \"epoch;loss\""),
            std::string::npos)
      << run.err;
  EXPECT_NE(run.err.find("\n  torchtitan "), std::string::npos) << run.err;
}

TEST(Replay, LiveDrawsTheFinalPictureWhereThereIsNoTerminal) {
  const std::string run = std::string(GNMR_EXAMPLES_DIR) + "/fault_run/";
  const ProgramRun drawn = run_gnmr("replay " + run + "norms.csv --max-o 3 --live");
  ASSERT_EQ(drawn.status, 0);
  EXPECT_EQ(drawn.err.find('\x1b'), std::string::npos);
  EXPECT_NE(drawn.err.find("layers.7.gate"), std::string::npos);
  EXPECT_NE(drawn.err.find("budget 3"), std::string::npos);
  EXPECT_EQ(std::count(drawn.err.begin(), drawn.err.end(), '\n'), 40 + 8);
}

TEST(Replay, AReaderThatGoesAwayIsNoCrash) {
  const int status =
      std::system("bash -c '" GNMR_PROGRAM " replay -q " GNMR_GOLDEN_DIR
                  "/long_run.csv --decisions - 2>/dev/null | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}'");
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_TRUE(WEXITSTATUS(status) == 4 || WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
}

class RealLogs : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const folder = std::getenv("GNMR_DATA_DIR");
    if (folder == nullptr) GTEST_SKIP() << "set GNMR_DATA_DIR to the folder with real training logs to run this";
    traces_ = std::string(folder) + "/traces/";
  }
  std::string traces_;
};

TEST_F(RealLogs, LlmCRunsAreReadAsWhatTheyAre) {
  const ProgramRun main_log = run_gnmr("replay " + traces_ + "llmc_gpt2_124M/karpathy_main.log --json");
  ASSERT_EQ(main_log.status, 0) << main_log.err;
  EXPECT_GT(json::parse(main_log.out)["steps"].get<int>(), 1000);
  const ProgramRun nan_log = run_gnmr("replay " + traces_ + "llmc_gpt2_124M/hector_gpt2_train.11679031.log.gz --json");
  ASSERT_EQ(nan_log.status, 0) << nan_log.err;
  EXPECT_GT(json::parse(nan_log.out)["non_finite"].get<int>(), 1000);
}

TEST_F(RealLogs, ALogWithoutNormsSaysSo) {
  const ProgramRun run = run_gnmr("replay " + traces_ + "te_fp8_stats/llama3_nvdlfw_inspect_statistics_logs.log");
  EXPECT_EQ(run.status, 3);
  EXPECT_NE(run.err.find("no gradient norm"), std::string::npos) << run.err;
}

TEST_F(RealLogs, RecordedFaultsAreScored) {
  for (const char* const kind : {"clip", "over", "gover", "clean", "bad"}) {
    const std::string base = traces_ + "faults/" + kind;
    const ProgramRun run = run_gnmr("replay " + base + ".norms.csv --truth " + base + ".truth.csv --max-o 3 --json");
    ASSERT_EQ(run.status, 0) << run.err;
    const json summary = json::parse(run.out);
    EXPECT_EQ(summary["steps"], 400) << kind;
    EXPECT_EQ(summary["units"], 40) << kind;
    const bool faulty = std::string(kind) != "clean" && std::string(kind) != "bad";
    EXPECT_EQ(summary["faults"].get<int>() > 0, faulty) << kind;
    EXPECT_TRUE(!faulty || summary["faults_found"].get<int>() > 0) << kind;
  }
}

}  // namespace
}  // namespace gnmr
