// SPDX-License-Identifier: Apache-2.0
// `gnmr lab`: suites of training runs, compared.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <type_traits>

#include "gnmr/commands.h"
#include "gnmr/exit_codes.h"
#include "gnmr/flag_values.h"
#include "gnmr/lab/experiment/fault_kinds.h"
#include "gnmr/lab/fault_suite.h"
#include "gnmr/lab/regimes.h"
#include "gnmr/lab_faults.h"
#include "gnmr/lab_suites.h"

namespace gnmr::app {

void add_suite_flags(CLI::App& command, LabArguments& arguments) {
  const auto add = [&command](const char* flag, auto& target, const char* help, WholeRange range) {
    using Target = std::remove_reference_t<decltype(target)>;
    return add_whole(
        command, flag, [&target](std::int64_t n) { target = static_cast<Target>(n); }, help, range);
  };
  add("--steps", arguments.steps, "Optimizer steps of each run", {.low = 1});
  add_texts(command, "--train", arguments.train,
            "Any setting of `gnmr train` or option of the controller, for all arms")
      ->type_name("NAME=VALUE");
  add("--jobs", arguments.jobs, "Runs at a time [as many as cores]", {.low = 1, .high = 4096});
  add("--threads", arguments.threads, "Threads of each run [cores / jobs]", {.low = 1, .high = 4096});
  add("--stall-limit", arguments.stall_limit, "Seconds without a step after which a run is given up; 0: never [1800]",
      {.low = 0, .high = std::int64_t{1} << 31})
      ->type_name("S");
  command.add_flag("--resume", arguments.resume,
                   "Go on with the suite in --out: finished runs are kept, begun ones go on");
  command.add_flag("-q,--quiet", arguments.quiet, "Print only the results");
}

namespace {

std::string stress_footer() {
  std::string text = "Regimes:\n";
  for (const lab::Regime& regime : lab::regimes()) text += fmt::format("  {:<15} {}\n", regime.name, regime.about);
  text += "Arms:\n";
  for (const lab::Arm& arm : lab::stress_arms()) text += fmt::format("  {:<15} {}\n", arm.name, arm.about);
  text += "  ARM:NAME=VALUE,... with other settings or options: for sweeps\n";
  text +=
      "\nExamples:\n"
      "  gnmr lab stress --regime int4-act                       all arms, seeds 0 1 2\n"
      "  gnmr lab stress --regime nvfp4 faults --seeds 0 1 2 3 4 --out runs/stress\n"
      "  gnmr lab stress --regime all --max-o 3 --resume         go on after Ctrl-C\n"
      "  gnmr lab stress --regime int3-act --train lr=0.01 'allow=*.down *.o' --arms high low gnmr\n\n";
  return text + kExitCodesHelp;
}

void add_stress(CLI::App& lab_command, Command& chosen) {
  CLI::App* const command = lab_command.add_subcommand(
      "stress", "Train in circumstances that strain low precision, with and without recovery");
  const auto arguments = std::make_shared<StressArguments>();
  add_texts(*command, "--regime", arguments->regimes, "Which circumstances (below), or all")
      ->type_name("NAME")
      ->required();
  add_texts(*command, "--arms", arguments->arms, "Which arms (below): names, or all [all]")->type_name("NAME");
  add_wholes(*command, "--seeds", arguments->seeds, "Seeds of weights and data order [0 1 2]");
  command->add_option("--model", arguments->model, "As in `gnmr train` [nano]")->type_name("NAME|FILE");
  command->add_option("--max-o", arguments->max_o, "Units in recovery at one time [the regime's]")->type_name("X");
  command->add_option("--out", arguments->common.out, "Folder; each regime has one of its own in it [runs/stress]")
      ->type_name("DIR");
  add_suite_flags(*command, arguments->common);
  command->footer(stress_footer());
  command->callback([&chosen, arguments] { chosen = [arguments] { return run_stress(*arguments); }; });
}

std::string faults_footer() {
  std::string text = "Faults, by site (docs/faults.md):\n";
  for (const lab::FaultKindSpec& spec : lab::fault_kinds()) {
    text += fmt::format("  {:<18} {}\n", spec.name, lab::to_string(spec.site));
  }
  text += "  KIND:once          in one step, gone when it is run again\n";
  text += "  none               nothing: what the controller costs (--steps 2000 is more precise)\n";
  text += "Arms:\n";
  for (const lab::Arm& arm : lab::fault_arms()) text += fmt::format("  {:<18} {}\n", arm.name, arm.about);
  text += "  ARM:NAME=VALUE,... with other settings or options, a rival with other parameters: for sweeps\n";
  text +=
      "\nEach arm has the same data, seed by seed, and the same faults; seeds differ in both. The controller's "
      "options\n"
      "are those of --options for all arms; an arm changes only what defines it (`paper` takes max_o alone).\n"
      "\nExamples:\n"
      "  gnmr lab faults --fault saturate                            11 arms, seeds 0 1 2\n"
      "  gnmr lab faults --fault required --seeds 0 1 2 3 4 --options frozen.json --out runs/faults\n"
      "  gnmr lab faults --fault none --steps 2000 --arms none norms trial\n"
      "  gnmr lab faults --fault overflow --arms high none zclip zclip:z=2 trial trial:error_factor=3\n"
      "  gnmr lab faults --fault saturate overflow --strength 1 4 16 --at-once 1 all --arms high none trial\n"
      "  gnmr lab faults --fault required --resume                   go on after Ctrl-C\n"
      "  gnmr lab faults --from runs/faults --collect results.jsonl  keep what is finished\n"
      "  gnmr lab faults --from here.jsonl there.jsonl --out docs    one table of both\n\n";
  return text + kExitCodesHelp;
}

void add_faults(CLI::App& lab_command, Command& chosen) {
  CLI::App* const command = lab_command.add_subcommand(
      "faults", "Inject faults whose place and time are known: who finds them, and what that wins");
  const auto arguments = std::make_shared<FaultsArguments>();
  CLI::Option* const fault = add_texts(*command, "--fault", arguments->faults,
                                       "What to inject (below): kinds, required (four of them), or all; this or --from "
                                       "is needed")
                                 ->type_name("KIND");
  add_texts(*command, "--strength", arguments->strengths, "One suite per strength of the fault, and one table of all")
      ->type_name("X");
  add_texts(*command, "--at-once", arguments->at_once,
            "One suite per number of layers in which it begins at once (harm is measured of one)")
      ->type_name("N|all");
  add_texts(*command, "--arms", arguments->arms, "Which arms (below): names, required, rivals, or all [required]")
      ->type_name("NAME");
  add_wholes(*command, "--seeds", arguments->seeds, "Seeds of weights, data order and faults [0 1 2]");
  command
      ->add_option("--options", arguments->options,
                   "The controller's options for all arms, as `gnmr options` writes them [the defaults, max_o 3]")
      ->type_name("FILE");
  command->add_option("--out", arguments->common.out, "Folder; each fault has one of its own in it [runs/faults]")
      ->type_name("DIR");
  add_suite_flags(*command, arguments->common);
  command
      ->add_option("--collect", arguments->collect,
                   "Write all finished cells of --out, or of --from, to one JSON Lines file")
      ->type_name("FILE");
  add_texts(*command, "--from", arguments->from,
            "Train nothing: tables of such files, or of folders of this command; with --out also DIR/summary.md")
      ->type_name("FILE|DIR")
      ->excludes(fault);
  command->footer(faults_footer());
  command->callback([&chosen, arguments] { chosen = [arguments] { return run_faults(*arguments); }; });
}

void add_demo(CLI::App& lab_command, Command& chosen) {
  CLI::App* const command = lab_command.add_subcommand(
      "demo", "Train a small model in FP8 with injected faults: what they cost, and what recovery wins back");
  const auto arguments = std::make_shared<DemoArguments>();
  add_whole(
      *command, "--seed", [arguments](std::int64_t seed) { arguments->seed = seed; },
      "Seed of weights and data order [0]");
  command->add_option("--out", arguments->common.out, "The suite's folder [runs/demo, or the next that is free]")
      ->type_name("DIR");
  add_suite_flags(*command, arguments->common);
  command->footer(std::string("About three minutes on two cores.\n\n") + kExitCodesHelp);
  command->callback([&chosen, arguments] { chosen = [arguments] { return run_demo(*arguments); }; });
}

}  // namespace

void add_lab_command(CLI::App& program, Command& chosen) {
  CLI::App* const command = program.add_subcommand("lab", "Experiments: suites of training runs, compared");
  command->require_subcommand(1);
  add_demo(*command, chosen);
  add_stress(*command, chosen);
  add_faults(*command, chosen);
}

}  // namespace gnmr::app
