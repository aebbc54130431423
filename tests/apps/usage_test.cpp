// SPDX-License-Identifier: Apache-2.0
// Mistakes on the command line, as a new user makes them: the message names the culprit and what was probably meant.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apps/program_run.h"

namespace gnmr::testing {
namespace {

struct Mistake {
  std::string arguments;
  std::string message;  // part of what is printed
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

void expect_message(const Mistake& mistake, int status = 2) {
  const ProgramRun run = run_gnmr(mistake.arguments);
  EXPECT_EQ(run.status, status) << mistake.arguments << "\n" << run.err;
  EXPECT_NE(first_line(run.err).find(mistake.message), std::string::npos) << mistake.arguments << "\n" << run.err;
  EXPECT_TRUE(run.out.empty()) << run.out;
}

TEST(Usage, UnknownCommandsAndFlagsOfferTheNearOne) {
  for (const Mistake& mistake : std::vector<Mistake>{
           {"tran", "gnmr: unknown command 'tran'; did you mean 'train'?"},
           {"tran --steps 3", "unknown command 'tran'; did you mean 'train'?"},
           {"lab strees", "unknown command 'strees'; did you mean 'stress'?"},
           {"nonsense", "unknown command 'nonsense'"},
           {"", "`gnmr` needs a command: train, lab"},
           {"lab", "`gnmr lab` needs a command: demo, stress, faults"},
           {"train --stpes 3", "unknown flag '--stpes'; did you mean '--steps'?"},
           {"train --stpes=3", "unknown flag '--stpes'; did you mean '--steps'?"},
           {"train -steps 3", "unknown flag '-steps'; did you mean '--steps'?"},
           {"replay x.csv --max_o 3", "unknown flag '--max_o'; did you mean '--max-o'?"},
           {"tune x.csv --helthy", "did you mean '--healthy'?"},
           {"explain x --limt 3", "did you mean '--limit'?"},
           {"report x --pain", "did you mean '--plain'?"},
           {"recipes --jsn", "unknown flag '--jsn'"},
           {"options --beta3 1", "did you mean '--beta'?"},
           {"lab faults --falt saturate", "did you mean '--fault'?"},
           {"--steps 3 train", "'--steps' comes after the command: gnmr train --steps"},
           {"train more", "unexpected argument 'more'"},
           {"replay a.csv b.csv", "unexpected argument 'b.csv'"},
       }) {
    expect_message(mistake);
  }
}

TEST(Usage, MissingArgumentsAreNamed) {
  for (const Mistake& mistake : std::vector<Mistake>{
           {"train --steps", "gnmr: --steps needs a number"},
           {"train --steps=", "--steps needs a number"},
           {"train --lr --steps 3", "--lr needs a number"},
           {"train --data", "--data needs a file"},
           {"train --device", "--device needs a value: cpu|cuda"},
           {"lab stress --regime", "--regime needs a name"},
           {"lab stress --regime int4-act --seeds", "--seeds needs a number"},
           {"lab stress", "--regime is missing: gnmr lab stress --regime NAME"},
           {"lab faults", "either --fault (what to inject) or --from (what to read) is needed"},
           {"lab faults --fault saturate --from x", "--fault and --from cannot be used together"},
           {"replay", "FILE is missing: gnmr replay FILE (or --trace FILE)"},
           {"tune --healthy", "FILE is missing: gnmr tune FILE (or --trace FILE)"},
           {"report", "DIRECTORY is missing: gnmr report DIRECTORY"},
           {"train --steps 3 --steps 4", "--steps is given more than once"},
           {"train --resume=maybe", "--resume takes no value"},
       }) {
    expect_message(mistake);
  }
}

TEST(Usage, NumbersAreNumbers) {
  for (const Mistake& mistake : std::vector<Mistake>{
           {"train --steps abc", "--steps needs a number, got 'abc'"},
           {"train --steps 1.5", "--steps needs a whole number, got '1.5'"},
           {"train --steps 1e-3", "--steps needs a whole number, got '1e-3'"},
           {"train --steps 1e30", "--steps needs a whole number, got '1e30'"},
           {"train --steps -3", "`steps`: expected a whole number from 1 to 2147483647, got -3"},
           {"train --steps nan", "--steps needs a whole number, got 'nan'"},
           {"train --lr x", "--lr needs a number, got 'x'"},
           {"train --lr 0", "`lr`: expected a number above 0, got 0"},
           {"train --max-o 7x", "--max-o needs a number, got '7x'"},
           {"options --lock-steps 1.5", "`lock_steps`: expected integer >= 1, got 1.5"},
           {"lab stress --regime int4-act --seeds 0 a", "--seeds needs a number, got 'a'"},
           {"lab demo --jobs 0", "--jobs needs a whole number from 1 to 4096, got '0'"},
           {"lab demo --stall-limit -1", "--stall-limit needs a whole number from 0"},
           {"replay x.csv --signals-every 0", "--signals-every needs a whole number from 1"},
           {"replay x.csv --steps-per-second -1", "--steps-per-second needs a number that is 0 or more, got '-1'"},
           {"tune x.csv --rate inf", "--rate needs a number that is 0 or more, got 'inf'"},
           {"tune x.csv --threads 0", "--threads needs a whole number from 1 to 4096, got '0'"},
           {"explain x --limit -1", "--limit needs a whole number from 0 on, got '-1'"},
           {"explain x --from a", "--from needs a number, got 'a'"},
       }) {
    expect_message(mistake);
  }
}

TEST(Usage, AWholeNumberMayHaveAnExponent) {
  const ProgramRun run = run_gnmr("options --lock-steps 1e2 --window 5.0");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("\"lock_steps\":100,"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("\"window\":5,"), std::string::npos) << run.out;
  // Where there is an engine the run would begin: a wrong setting behind it ends it, and is what is complained of.
  expect_message({"train --steps 1e3 --device gpu", "`device`: expected one of cpu, cuda, got \"gpu\""});
  expect_message({"train --steps 3e9", "`steps`: expected a whole number from 1 to 2147483647, got 3000000000"});
  expect_message({"lab demo --steps 1e3 --train threads=1", "--train threads: use --threads"});
}

TEST(Usage, OptionsWithoutEffectAreNamed) {
  for (const Mistake& mistake : std::vector<Mistake>{
           {"train --controller none --tau 3",
            "option `tau`: has no effect, since there is no controller; leave it out"},
           {"train --controller none --selector trial", "option `selector`: has no effect"},
           {"train --controller watch --recipe none --error-factor 3", "option `error_factor`: has no effect, since"},
           {"train --recipe none --selector trial", "option `selector`: has no effect, since errors of low paths are"},
           {"train --selector norms --error-factor 3", "option `error_factor`: has no effect, since the selector is"},
           {"tune x.csv --selector trial", "option `selector`: has no effect, since errors of low paths are not"},
           {"tune x.csv --guard clip", "option `guard`: has no effect, since updates cannot be held or scaled here"},
           {"tune x.csv --max-trials 3", "option `max_trials`: has no effect, since no step can run again here"},
           {"tune x.csv --error-factor 3", "option `error_factor`: has no effect, since errors of low paths are not"},
           {"tune x.csv --evidence e.csv --error-ceiling 3", "option `error_ceiling`: has no effect, since the errors"},
       }) {
    expect_message(mistake);
  }
  // These have one: what is complained of is behind them.
  for (const std::string flags : {"train --controller watch --recipe none --tau 3 --device gpu",
                                  "train --controller none --preset paper --device gpu"}) {
    expect_message({flags, "`device`: expected one of cpu, cuda"});
  }
  expect_message({"tune none.csv --evidence e.csv --selector norms --error-factor 3", "none.csv"}, 3);
  expect_message({"tune none.csv --preset paper --noise-beta 0.9", "none.csv"}, 3);
}

TEST(Usage, UnknownNamesOfferTheNearOne) {
  for (const Mistake& mistake : std::vector<Mistake>{
           {"train --controller gnrm", "got \"gnrm\"; did you mean 'gnmr'?"},
           {"train --recipe fp8-delayd", "did you mean 'fp8-delayed'?"},
           {"train --preset papr", "did you mean 'paper'?"},
           {"train --faults satrate:once", "did you mean 'saturate'?"},
           {"train --device cude", "did you mean 'cuda'?"},
           {"options --selector trail", "did you mean 'trial'?"},
           {"replay x.csv --format csvv", "did you mean 'csv'?"},
           {"lab stress --regime int4act", "did you mean 'int4-act'?"},
           {"lab stress --regime int4-act --arms hihg", "did you mean 'high'?"},
           {"lab stress --regime int4-act --train lrr=3", "did you mean 'lr'?"},
           {"lab faults --fault satrate", "did you mean 'saturate'?"},
           {"lab faults --fault saturate --arms nrms", "did you mean 'norms'?"},
       }) {
    expect_message(mistake);
  }
  expect_message({"recipes mxfp9", "did you mean 'mxfp8'?"}, 3);
}

TEST(Usage, FilesWithMistakesAreErrorsWithTheirPlace) {
  const Scratch scratch;
  const std::string trace = scratch.write("norms.csv", "step,a,b\n1,1,1\n2,1,1\n");
  const std::string bad = "{\"tau\": 2,\n \"max_o\" 3}\n";
  const std::string options = scratch.write("options.json", bad);
  const std::string place = "not JSON: line 2, column 10: unexpected number literal; expected ':'";
  expect_message({"replay " + trace + " --config " + options, options + ": [options] " + place}, 3);
  expect_message({"replay " + trace + " --units " + options, options + ": " + place}, 3);
  expect_message({"recipes " + options, options + ": " + place}, 3);
  const std::string run = scratch.write("run.json", bad);
  expect_message({"report " + scratch.path(""), "run.json: " + place}, 3);
  scratch.write("run.json", R"({"version":1})");
  scratch.write("metrics.jsonl", "{\"kind\":\"train\",\"step\":1,\"loss\":1}\n{\"kind\" 1}\n");
  expect_message({"report " + scratch.path(""), "metrics.jsonl: line 2: not JSON: column 9: unexpected number"}, 3);
  const std::string typo = scratch.write("typo.json", R"({"max_0": 3})");
  expect_message({"replay " + trace + " --config " + typo, "unknown option \"max_0\"; did you mean 'max_o'?"}, 3);
  const std::string units = scratch.write("units.json", R"({"units":[{"name":"a","csot":3}]})");
  expect_message({"replay " + trace + " --units " + units, "unknown key \"csot\"; did you mean 'cost'?"}, 3);
  const std::string recipe = scratch.write("recipe.json", R"({"name":"x","input":{"formt":"e4m3"}})");
  expect_message({"recipes " + recipe, "did you mean 'format'?"}, 3);
}

TEST(Usage, HelpIsInOurWords) {
  for (const std::string command : {"", "train", "lab", "lab demo", "lab stress", "lab faults", "replay", "tune",
                                    "recipes", "options", "report", "explain"}) {
    const ProgramRun run = run_gnmr(command + " --help");
    EXPECT_EQ(run.status, 0);
    for (const char* const odd : {"... ...", "1.797", "POSITIVE", "NONNEGATIVE", "FLOAT", "json.exception"}) {
      EXPECT_EQ(run.out.find(odd), std::string::npos) << command << ": " << odd;
    }
    if (command == "replay" || command == "tune") {
      EXPECT_EQ(run.out.find("REQUIRED"), run.out.rfind("REQUIRED")) << command << ": either of two is enough";
    }
  }
}

TEST(Usage, OneIsSingular) {
  const Scratch scratch;
  std::string text = "step,a\n";
  for (int step = 1; step <= 30; ++step) text += std::to_string(step) + (step == 30 ? ",50\n" : ",1\n");
  const std::string trace = scratch.write("norms.csv", text);
  const ProgramRun one = run_gnmr("replay " + trace + " --max-o 1");
  EXPECT_NE(one.out.find("(1 unit)"), std::string::npos) << one.out;
  const std::string truth = scratch.write("faults.csv", "step,a\n30,1\n31,1\n");
  const ProgramRun with_truth = run_gnmr("replay " + trace + " --truth " + truth);
  EXPECT_NE(with_truth.err.find("1 step of the truth is not in the trace"), std::string::npos) << with_truth.err;
}

}  // namespace
}  // namespace gnmr::testing
