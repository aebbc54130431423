// SPDX-License-Identifier: Apache-2.0
// `gnmr plan`: which units should always run high, by the errors that a run measured.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gnmr/commands.h"
#include "gnmr/exit_codes.h"
#include "gnmr/io/journal_reader.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/state_file.h"
#include "gnmr/lab/high_plan.h"
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
};

/// What a plan is made from.
struct MeasuredRun {
  std::vector<Unit> units;
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
    if (const auto* const header = std::get_if<io::JournalHeader>(&record)) run.units = header->units;
  }
  if (run.units.empty()) throw Error(folder.journal() + ": there is no header that lists the units");
  return run;
}

std::vector<std::string> site_names(std::uint32_t sites) {
  if (sites == 3) return {"forward", "input_gradient", "weight_gradient"};
  std::vector<std::string> names;
  for (std::uint32_t site = 0; site < sites; ++site) names.push_back(std::to_string(site));
  return names;
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
  if (!is_named("coarse_factor") && used.coarse_error > 0) options.coarse_factor = used.coarse_factor;
  const lab::HighPlan made =
      with_exit_code(kInputError, [&] { return lab::plan_high_units(run.units, run.state, options); });
  const std::vector<std::string> sites = site_names(run.state.sites);
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
    "median of all units, and if it has room within --max-o, --max-cost and --group-max. A run with these options\n"
    "finds the same units by itself (standing recovery); the plan is for other trainers, or to choose the budget.\n\n"
    "Columns: the usual error of each GEMM's low path, the largest one over its median, and what the plan says:\n"
    "`high`; `no room` in the budget; `unmeasured`; `set by you`, which plans leave alone.\n\n"
    "Examples:\n"
    "  gnmr train --recipe int4-act --steps 80 --patrol 1 --controller watch --out runs/measure\n"
    "  gnmr plan runs/measure --max-o 4\n"
    "  gnmr train --recipe int4-act $(gnmr plan runs/measure --max-o 4 --flags)\n"
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
  arguments->options.add_to(*command);
  command->footer(std::string(kPlanFooter) + kExitCodesHelp);
  command->callback([&chosen, arguments] { chosen = [arguments] { return plan(*arguments); }; });
}

}  // namespace gnmr::app
