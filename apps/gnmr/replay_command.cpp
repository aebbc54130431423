// SPDX-License-Identifier: Apache-2.0
// The command line of `gnmr replay`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>

#include "gnmr/commands.h"
#include "gnmr/exit_codes.h"
#include "gnmr/flag_values.h"
#include "gnmr/option_flags.h"
#include "gnmr/replay.h"

namespace gnmr::app {
namespace {

struct ReplayArguments {
  ReplayRequest request;
  OptionFlags flags;
};

void add_input_flags(CLI::App& command, ReplayRequest& request) {
  add_trace_flags(command, request.input);
  command.add_option("--load-state", request.load_state_path, "Go on from a saved state")
      ->type_name("FILE")
      ->group("Input");
}

void add_output_flags(CLI::App& command, ReplayRequest& request) {
  constexpr const char* kGroup = "Output";
  command
      .add_option("--decisions", request.decisions_path,
                  "Write one decision per step (JSON Lines); - is standard output")
      ->type_name("FILE")
      ->group(kGroup);
  command.add_option("--journal", request.journal_path, "Write the journal (JSON Lines); - is standard output")
      ->type_name("FILE")
      ->group(kGroup);
  command.add_option("--signals", request.signals_path, "Write the ratios of all units (binary rows)")
      ->type_name("FILE")
      ->group(kGroup);
  add_whole(command, "--signals-every",
            [&request](std::int64_t steps) { request.signals_every = static_cast<int>(steps); },
            "Steps from one row of --signals to the next [1]", {.low = 1, .high = std::numeric_limits<int>::max()})
      ->group(kGroup);
  command.add_option("--save-state", request.save_state_path, "Save the state after the last step")
      ->type_name("FILE")
      ->group(kGroup);
  command.add_flag("--live", request.live, "Draw a heat map of units over steps, as it goes on a terminal")
      ->group(kGroup);
  add_amount(command, "--steps-per-second", request.steps_per_second, "Slow --live down to be watched")->group(kGroup);
  command.add_flag("--json", request.json_summary, "Print the summary as one line of JSON")->group(kGroup);
  command.add_flag("-q,--quiet", request.quiet, "Print no summary, notes or progress")->group(kGroup);
}

}  // namespace

void add_replay_command(CLI::App& program, Command& chosen) {
  CLI::App* const command = program.add_subcommand("replay", "What would the controller have done on my run?");
  const auto arguments = std::make_shared<ReplayArguments>();
  add_input_flags(*command, arguments->request);
  add_output_flags(*command, arguments->request);
  arguments->flags.add_to(*command);
  command->footer(std::string("Examples:\n"
                              "  gnmr replay norms.csv\n"
                              "  gnmr replay train.log.gz --preset paper --tau 1.5\n"
                              "  gnmr replay norms.csv --truth faults.csv --live\n"
                              "  gnmr replay norms.csv --decisions - | jq .admitted\n"
                              "  gnmr replay wandb_export.csv --run llama-7b-fp8\n\n"
                              "Several runs in one export or folder are replayed one after the other, a summary each;\n"
                              "--run chooses one, which every output but the summary needs.\n\n") +
                  kExitCodesHelp);
  command->callback([&chosen, arguments] {
    chosen = [arguments] {
      ReplayRequest& request = arguments->request;
      check_trace_flags(request.input);
      request.options = arguments->flags.options();
      request.named_options = arguments->flags.named();
      request.config_path = arguments->flags.config_path();
      if (request.signals_path == "-" || request.save_state_path == "-") {
        throw CommandError(kUsageError, "--signals and --save-state are binary: name a file");
      }
      if (request.decisions_path == "-" && request.journal_path == "-") {
        throw CommandError(kUsageError, "--decisions and --journal cannot both be standard output");
      }
      replay(request);
      return static_cast<int>(kOk);
    };
  });
}

}  // namespace gnmr::app
