// SPDX-License-Identifier: Apache-2.0
// `gnmr explain`: the story of a run, from its journal.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "gnmr/commands.h"
#include "gnmr/exit_codes.h"
#include "gnmr/flag_values.h"
#include "gnmr/messages.h"
#include "gnmr/report/explanation.h"

namespace gnmr::app {
namespace {

struct ExplainArguments {
  std::string path;
  report::StorySettings settings;
  bool json = false;
};

int explain(const ExplainArguments& arguments) {
  if (arguments.settings.from_step && arguments.settings.to_step &&
      *arguments.settings.from_step > *arguments.settings.to_step) {
    throw CommandError(kUsageError, "--from is after --to");
  }
  const report::RunFiles run = with_exit_code(kInputError, [&] { return report::read_run_to_explain(arguments.path); });
  const report::Story story = report::make_story(run, arguments.settings);
  put(stdout, arguments.json ? report::story_json(story) + "\n" : report::explanation_text(story, arguments.settings));
  return kOk;
}

constexpr const char* kExplainFooter =
    "The summary is of the whole run; then comes what happened, episode by episode, each with its verdict first:\n"
    "  numeric    errors of low paths were above their limit in the rerun: these units went to recovery\n"
    "  common     high precision showed it too: the cause is the data or the optimizer\n"
    "  unlocated  high precision did not show it, and no unit's low path was above its limit: errors of several units\n"
    "             together, or a fault that does not repeat (journals of earlier versions call it gone)\n"
    "An episode is a step that was run again or sent units to recovery, with their release; successive steps with a\n"
    "common cause or nothing but denials; a mode, a resume, a note. If there are more than --limit, modes,\n"
    "reruns, relapses and severe recoveries stay.\n\n"
    "What it was worth: a rerun is helpful if it was numeric and the gradient that made the update is 0.1 or more\n"
    "(relative) from the alarmed one; slight if less; wasted if the cause was common. A recovery is worth what\n"
    "the rerun of the step that admitted it measured. It costs its share of that rerun, and what its steps in high\n"
    "precision took beyond the usual, which is estimated (docs/report.md).\n\n"
    "Examples:\n"
    "  gnmr explain runs/fp8                               what happened in a run\n"
    "  gnmr explain runs/fp8 --unit '*.mlp.down' --from 5000 --to 6000\n"
    "  gnmr explain runs/fp8/journal.jsonl --limit 0       all episodes, from the journal alone\n"
    "  gnmr explain runs/fp8 --json | jq '.audit, .recoveries'\n"
    "  gnmr replay norms.csv --journal - -q | gnmr explain -\n\n";

}  // namespace

void add_explain_command(CLI::App& program, Command& chosen) {
  CLI::App* const command = program.add_subcommand("explain", "Show what happened in a run, from its journal");
  const auto arguments = std::make_shared<ExplainArguments>();
  report::StorySettings& settings = arguments->settings;
  command
      ->add_option("run", arguments->path,
                   "Directory of a run, or a journal (plain or .gz; - is standard input); the run may have been killed "
                   "or still go on")
      ->required()
      ->type_name("RUN|FILE");
  add_whole(*command, "--limit",
            [&settings](std::int64_t limit) { settings.limit = static_cast<decltype(settings.limit)>(limit); },
            "At most this many episodes, and recoveries, the most important ones [40]; 0: all", {.low = 0});
  command->add_option("--unit", settings.unit_glob, "Only episodes with a unit whose name fits: `*.down`, `layers.3.*`")
      ->type_name("GLOB");
  add_whole(
      *command, "--from", [&settings](std::int64_t step) { settings.from_step = step; },
      "Only episodes that end in this step or later")
      ->type_name("STEP");
  add_whole(
      *command, "--to", [&settings](std::int64_t step) { settings.to_step = step; },
      "Only episodes that begin in this step or earlier")
      ->type_name("STEP");
  command->add_flag("--json", arguments->json, "Print one JSON object for programs");
  command->footer(std::string(kExplainFooter) + kExitCodesHelp);
  command->callback([&chosen, arguments] { chosen = [arguments] { return explain(*arguments); }; });
}

}  // namespace gnmr::app
