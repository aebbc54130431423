// SPDX-License-Identifier: Apache-2.0
// `gnmr plan`: which units should always run high, by the errors that a run measured; `--check` asks runs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gnmr/commands.h"
#include "gnmr/exit_codes.h"
#include "gnmr/flag_values.h"
#include "gnmr/io/journal_reader.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/state_file.h"
#include "gnmr/lab/high_plan.h"
#include "gnmr/lab/plan_check.h"
#include "gnmr/lab_run.h"
#include "gnmr/messages.h"
#include "gnmr/option_flags.h"
#include "gnmr/run/run_folder.h"

namespace gnmr::app {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";

struct PlanArguments {
  std::string path;
  OptionFlags options;
  bool json = false;
  bool flags = false;
  bool filter = false;
  bool check = false;
  LabArguments suite;               // of a check
  std::vector<std::int64_t> seeds;  // likewise; empty: three from the run's on
};

/// What a plan is made from.
struct MeasuredRun {
  std::vector<Unit> units;
  std::vector<std::string> sites;  // names; empty: there are none
  ControllerState state;
};

/// The newest checkpoint with a controller's state.
std::string newest_state(const run::RunFolder& folder) {
  std::map<std::int64_t, std::string> found;  // by step; what was set aside has another name
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.checkpoints(), failure)) {
    const std::string name = entry.path().filename().string();
    const fs::path state = entry.path() / "controller.gnmr";
    std::int64_t step = 0;
    if (!name.starts_with(kStepPrefix) || !io::parse_whole(name.substr(kStepPrefix.size()), step)) continue;
    if (fs::exists(state)) found.emplace(step, state.string());
  }
  if (found.empty()) throw Error(folder.path() + ": there is no checkpoint yet, and so no measured errors");
  return found.rbegin()->second;
}

/// Costs and groups are in the journal of the run; a state alone has names only.
MeasuredRun read_run(const std::string& path) {
  MeasuredRun run;
  if (!fs::is_directory(path)) {
    run.state = io::load_state(path).state;
    for (const UnitState& unit : run.state.units) run.units.push_back({.name = unit.name});
    say(path + ": a state has no costs of units: all count the same");
    return run;
  }
  const run::RunFolder folder(path);
  run.state = io::load_state(newest_state(folder)).state;
  io::JournalReader journal(folder.journal());
  io::JournalRecord record;
  while (run.units.empty() && journal.next(record)) {
    if (const auto* const header = std::get_if<io::JournalHeader>(&record)) {
      run.units = header->units;
      run.sites = header->sites;
    }
  }
  if (run.units.empty()) throw Error(folder.journal() + ": there is no header that lists the units");
  return run;
}

/// The folder of a check, beside the run's.
std::string check_folder(const PlanArguments& arguments) {
  if (!arguments.suite.out.empty()) return arguments.suite.out;
  fs::path path(arguments.path);
  if (!path.has_filename()) path = path.parent_path();
  return path.string() + "-check";
}

lab::SuiteRequest check_request(const PlanArguments& arguments, const lab::HighPlan& made) {
  if (!fs::is_directory(arguments.path)) {
    throw CommandError(kInputError, arguments.path + ": a check needs the folder of a run, which has its settings");
  }
  const run::TrainSettings settings =
      with_exit_code(kInputError, [&] { return run::load_run_info(run::RunFolder(arguments.path)).settings; });
  if (made.chosen == 0) throw CommandError(kInputError, "no unit is in the plan: there is nothing to check");
  return with_exit_code(kUsageError, [&] {
    check_train_texts(arguments.suite.train);
    lab::SuiteRequest request = request_from(arguments.suite, check_folder(arguments), lab::check_texts(settings));
    request.title = "The plan of " + arguments.path + ", checked by runs";
    request.notes = notes_for(request, arguments.suite);
    request.notes.push_back("high:" + lab::plan_flags(made).substr(std::string_view("--always-high").size()));
    request.seeds = arguments.seeds;
    for (std::int64_t seed = settings.seed; arguments.seeds.empty() && seed < settings.seed + 3; ++seed) {
      request.seeds.push_back(seed);
    }
    request.arms = lab::check_arms(made, settings);
    return request;
  });
}

/// Trains, and prints the plan with what came of it.
int check_plan(const PlanArguments& arguments, const lab::HighPlan& made, const std::vector<std::string>& sites) {
  LabArguments suite = arguments.suite;
  suite.prints_table = !arguments.json;
  if (!arguments.json) put(stdout, lab::plan_table(made, sites) + "\n");
  const SuiteRun run = run_suite(check_request(arguments, made), suite);
  const lab::PlanCheck check = lab::check_plan(lab::compare(run.suite, run.results()));
  if (arguments.json) {
    put(stdout, lab::plan_json(made, sites, lab::check_json(made, check)));
  } else {
    put(stdout, "\n" + lab::check_text(made, check));
  }
  print_end(run, arguments.json ? stderr : stdout);
  return status_of(run);
}

int plan(const PlanArguments& arguments) {
  const MeasuredRun run = with_exit_code(kInputError, [&] { return read_run(arguments.path); });
  Options options = arguments.options.options();
  const std::vector<std::string> named = arguments.options.named();
  const auto is_named = [&](const char* name) { return std::find(named.begin(), named.end(), name) != named.end(); };
  // What the user does not say is as in the run.
  const Options& used = run.state.options;
  if (!is_named("max_o")) options.max_o = used.max_o;
  if (!is_named("max_cost")) options.max_cost = used.max_cost;
  if (!is_named("group_max")) options.group_max = used.group_max;
  if (!is_named("coarse_error") && used.coarse_error > 0) options.coarse_error = used.coarse_error;
  if (!is_named("coarse_fill") && used.coarse_error > 0) options.coarse_fill = used.coarse_fill;
  if (!is_named("coarse_factor") && used.coarse_error > 0) options.coarse_factor = used.coarse_factor;
  const lab::HighPlan made =
      with_exit_code(kInputError, [&] { return lab::plan_high_units(run.units, run.state, options); });
  const std::vector<std::string> sites = io::site_names(run.sites, run.state.sites);
  if (arguments.check) return check_plan(arguments, made, sites);
  if (arguments.json) {
    put(stdout, lab::plan_json(made, sites));
  } else if (arguments.filter) {
    put(stdout, with_exit_code(kInputError, [&] { return lab::plan_filter(made); }));
  } else if (arguments.flags) {
    put(stdout, lab::plan_flags(made) + "\n");
  } else {
    put(stdout, lab::plan_table(made, sites));
  }
  return kOk;
}

constexpr const char* kPlanFooter =
    "In some formats a few layers always lose far more than the others (the inputs of `down` with INT4 activations,\n"
    "say). A run measures this beside its steps (--patrol); twenty steps are enough with each layer in each step.\n"
    "A unit is in the plan if its usual error in some GEMM is above --coarse-error and --coarse-factor times the\n"
    "median of all units, and if it has room within --max-o, --max-cost and --group-max. Where there is such a unit,\n"
    "others with an error above --coarse-fill fill the rest (0: they do not). A run with these options finds the same\n"
    "units by itself (standing recovery); the plan is for other trainers, or to choose the budget.\n\n"
    "Columns: the usual error of each GEMM's low path, the largest one over its median, and what the plan says:\n"
    "`high`, `high (fills)`; `no room` in the budget; `unmeasured`; `set by you`, which plans leave alone.\n\n"
    "--check trains as the run was trained: all units high, all low, the plan's high, each with every seed; and\n"
    "prints what the plan predicts beside what was measured. The prediction is simple: the share of the squared\n"
    "errors above the median that the units have is the share of the gap that they close. The runs are a suite in a\n"
    "folder of their own; --resume goes on with it.\n\n"
    "Examples:\n"
    "  gnmr train --recipe int4-act --steps 80 --patrol 1 --controller watch --out runs/measure\n"
    "  gnmr plan runs/measure --max-o 4\n"
    "  gnmr train --recipe int4-act $(gnmr plan runs/measure --max-o 4 --flags)\n"
    "  gnmr plan runs/measure --max-o 4 --check --steps 400 --seeds 0 1 2\n"
    "  gnmr plan runs/measure --max-o 4 --torchao > high_layers.py     a filter for convert_to_float8_training\n\n";

}  // namespace

void add_plan_command(CLI::App& program, Command& chosen) {
  CLI::App* const command =
      program.add_subcommand("plan", "Say which units should always run high, from the errors that a run measured");
  const auto arguments = std::make_shared<PlanArguments>();
  command->add_option("run", arguments->path, "Directory of a run with a checkpoint, or the state of a controller")
      ->required()
      ->type_name("RUN|FILE");
  CLI::Option* const json = command->add_flag("--json", arguments->json, "Print one JSON object for programs");
  CLI::Option* const flags =
      command->add_flag("--flags", arguments->flags, "Print only the flags for `gnmr train`")->excludes(json);
  command->add_flag("--torchao", arguments->filter, "Print a filter for torchao's convert_to_float8_training")
      ->excludes(json)
      ->excludes(flags);
  CLI::Option* const check =
      command->add_flag("--check", arguments->check, "Train with the plan, and with all units high and all low");
  check->excludes(flags)->excludes("--torchao");
  add_wholes(*command, "--seeds", arguments->seeds, "Seeds of weights and data order [the run's and the next two]");
  command->add_option("--out", arguments->suite.out, "The suite's folder [RUN-check]")->type_name("DIR");
  add_suite_flags(*command, arguments->suite);
  for (const char* const name :
       {"--seeds", "--out", "--steps", "--train", "--jobs", "--threads", "--stall-limit", "--resume", "--quiet"}) {
    command->get_option(name)->needs(check)->group("With --check");
  }
  arguments->options.add_to(*command);
  command->footer(std::string(kPlanFooter) + kExitCodesHelp);
  command->callback([&chosen, arguments] { chosen = [arguments] { return plan(*arguments); }; });
}

}  // namespace gnmr::app
