// SPDX-License-Identifier: Apache-2.0
// `gnmr report`, as a user runs it.
#include <gtest/gtest.h>

#include <filesystem>

#include "apps/program_run.h"
#include "report/sample_run.h"

namespace gnmr::testing {
namespace {

class ReportCommand : public ::testing::Test {
 protected:
  ReportCommand() { test::write_sample_run(scratch_.path("run"), {}); }
  Scratch scratch_;
};

TEST_F(ReportCommand, WritesBesideTheRunAndSaysWhere) {
  const ProgramRun run = run_gnmr("report " + scratch_.path("run"));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(run.out.starts_with(scratch_.path("run/report.html") + " (")) << run.out;
  EXPECT_TRUE(read_file(scratch_.path("run/report.html")).starts_with("<!doctype html>"));
  EXPECT_EQ(run_gnmr("report " + scratch_.path("run")).status, 0) << "a report is replaced by the next one";
}

TEST_F(ReportCommand, PlainToStandardOutput) {
  const ProgramRun run = run_gnmr("report --plain --out - " + scratch_.path("run"));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(run.out.starts_with("<!doctype html>"));
  EXPECT_TRUE(run.out.ends_with("</html>\n"));
  EXPECT_EQ(run.out.find("<script"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("run/report.html")));
}

TEST_F(ReportCommand, RemarksAreSaidUnlessQuiet) {
  std::filesystem::remove(scratch_.path("run/signals.bin"));
  EXPECT_NE(run_gnmr("report --plain " + scratch_.path("run")).err.find("There is no signals.bin"), std::string::npos);
  const ProgramRun quiet = run_gnmr("report -q " + scratch_.path("run"));
  EXPECT_EQ(quiet.out + quiet.err, "");
}

TEST_F(ReportCommand, ExitStatusTellsWhatWentWrong) {
  EXPECT_EQ(run_gnmr("report").status, 2);
  const ProgramRun nowhere = run_gnmr("report " + scratch_.path("nowhere"));
  EXPECT_EQ(nowhere.status, 3);
  EXPECT_NE(nowhere.err.find("no such directory"), std::string::npos) << nowhere.err;
  EXPECT_EQ(run_gnmr("report " + scratch_.path("run") + " --out " + scratch_.path("no/folder/x.html")).status, 4);
  const std::string before = read_file(scratch_.path("run/run.json"));
  EXPECT_EQ(run_gnmr("report " + scratch_.path("run") + " --out " + scratch_.path("run/run.json")).status, 2);
  EXPECT_EQ(read_file(scratch_.path("run/run.json")), before);
}

TEST_F(ReportCommand, HelpTeaches) {
  const ProgramRun run = run_gnmr("report --help");
  EXPECT_EQ(run.status, 0);
  for (const char* const text : {"--plain", "--out", "gnmr report runs/fp8", "suite.json", "Exit status"}) {
    EXPECT_NE(run.out.find(text), std::string::npos) << text;
  }
}

TEST_F(ReportCommand, AReplayIsARunToo) {
  const std::string folder = scratch_.path("replay");
  std::filesystem::create_directory(folder);
  std::string trace = "step,a,b\n";
  for (int step = 1; step <= 40; ++step) trace += std::to_string(step) + (step == 30 ? ",9,1\n" : ",1,1\n");
  const std::string path = scratch_.write("norms.csv", trace);
  ASSERT_EQ(
      run_gnmr("replay -q " + path + " --journal " + folder + "/journal.jsonl --signals " + folder + "/signals.bin")
          .status,
      0);
  const ProgramRun run = run_gnmr("report --plain " + folder);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(read_file(folder + "/report.html").find("risk, admitted"), std::string::npos);
}

}  // namespace
}  // namespace gnmr::testing
