// SPDX-License-Identifier: Apache-2.0
// `gnmr train`: trains a model in low precision, with the controller on it.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <string>

#include "gnmr/commands.h"
#include "gnmr/engine_loader.h"
#include "gnmr/exit_codes.h"
#include "gnmr/train_flags.h"
#include "gnmr/train_view.h"

namespace gnmr::app {
namespace {

struct TrainArguments {
  TrainFlags flags;
  bool quiet = false;
};

constexpr const char* kTrainFooter =
    "Examples:\n"
    "  gnmr train                                        a small model, FP8, the controller on it\n"
    "  gnmr train --recipe none --controller none        the same in high precision\n"
    "  gnmr train --max-o 3 --faults saturate overflow   with injected faults\n"
    "  gnmr train --model micro --data books.txt --steps 2000 --out runs/books\n"
    "  gnmr train ... --resume                           go on after a stop, or a crash\n"
    "  gnmr train --set 'layers.*.down=high@100:200'     a switchboard without a detector\n\n"
    "While it runs: `echo watch > OUT/control` (or high, armed), SIGUSR1 (watch), SIGUSR2 (high); Ctrl-C,\n"
    "SIGTERM and SIGHUP stop with a checkpoint and exit status 5. One command for a requeue script: gnmr train ...\n"
    "--resume starts the run or continues it. Several processes: torchrun --nproc-per-node 4 -m gnmr train ...\n"
    "(docs/python.md).\n\n";

/// The group of processes that trains together, made by whoever has loaded this (python -m gnmr); empty: none.
std::string process_group() {
  const char* const name = std::getenv("GNMR_PROCESS_GROUP");
  return name != nullptr ? name : "";
}

}  // namespace

void add_train_command(CLI::App& program, Command& chosen) {
  CLI::App* const command =
      program.add_subcommand("train", "Train a model in low precision, with the controller on it");
  const auto arguments = std::make_shared<TrainArguments>();
  arguments->flags.add_to(*command);
  command->add_flag("-q,--quiet", arguments->quiet, "Print nothing but errors")->group("Output");
  command->footer(std::string(kTrainFooter) + kExitCodesHelp);
  command->callback([&chosen, arguments] {
    chosen = [arguments] {
      const run::TrainSettings settings = arguments->flags.settings();
      TrainView view({.stream = stderr, .quiet = arguments->quiet});
      const run::TrainOutcome outcome = load_engine().train(settings, view, process_group());
      view.finished(outcome);
      if (!outcome.unsaved.empty()) throw CommandError(kOutputError, "NOT SAVED: " + outcome.unsaved);
      return static_cast<int>(outcome.finished ? kOk : kStopped);
    };
  });
}

}  // namespace gnmr::app
