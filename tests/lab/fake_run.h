// SPDX-License-Identifier: Apache-2.0
// Run folders as a training run leaves them behind, written with the real writers.
#pragma once

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "gnmr/core/controller.h"
#include "gnmr/io/journal_writer.h"
#include "gnmr/run/harm.h"
#include "gnmr/run/metrics.h"
#include "gnmr/run/run_folder.h"

namespace gnmr::test {

/// What the run is like. Four units in two blocks; `burst_step` is when the norm of the first one rises.
struct FakeRun {
  run::TrainSettings settings = {};
  std::int64_t steps_done = 0;  // of settings.steps
  double loss = 2;              // held-out, at the end
  std::int64_t burst_step = 0;  // 0: never
  std::int64_t fault_last = 0;  // last step of a fault that begins with the burst; 0: no faults.csv, no faults.jsonl
  std::vector<run::HarmLine> harm = {};       // written where settings.experiment.harm is true
  std::vector<io::JournalTrial> trials = {};  // steps that ran again
  bool says_why_high = false;                 // metrics.jsonl has `standing`, `rerun_high`, `high_cost`, `loss_trained`
};

inline const std::vector<std::string>& fake_unit_names() {
  static const std::vector<std::string> names{"layers.0.q", "layers.0.down", "layers.1.q", "layers.1.down"};
  return names;
}

inline std::vector<Unit> fake_units() {
  std::vector<Unit> units;
  for (const std::string& name : fake_unit_names()) units.push_back({.name = name, .group = name.substr(0, 8)});
  return units;
}

/// Writes faults.csv and faults.jsonl: one fault, in the first unit.
inline void write_fake_faults(const FakeRun& fake) {
  const run::RunFolder folder(fake.settings.out);
  std::ofstream truth(folder.faults());
  truth << "step";
  for (const std::string& name : fake_unit_names()) truth << "," << name;
  for (std::int64_t step = 1; step <= fake.settings.steps; ++step) {
    truth << "\n" << step << (step >= fake.burst_step && step <= fake.fault_last ? ",1" : ",0") << ",0,0,0";
  }
  truth << "\n";
  std::ofstream(folder.fault_list()) << R"({"kind":"fault","fault":"overflow","site":"cast","layer":")"
                                     << fake_unit_names().front() << R"(","first":)" << fake.burst_step << R"(,"last":)"
                                     << fake.fault_last << R"(,"transient":false,"strength":64})"
                                     << "\n";
}

/// Writes the folder that `settings.out` names.
inline void write_fake_run(const FakeRun& fake) {
  const run::RunFolder folder(fake.settings.out);
  const run::RunLock lock(folder, false);
  run::RunInfo info;
  info.program = "gnmr";
  info.model = "nano";
  info.recipe = fake.settings.recipe;
  info.controller = fake.settings.controller;
  info.units = 4;
  info.budget = 1;
  info.commit = "abc-dirty";
  info.torch = "2.13.0";
  info.threads = 3;
  info.settings = fake.settings;
  run::save_run_info(folder, info);
  run::MetricsWriter metrics({.path = folder.metrics()});
  Controller controller(fake_units(), fake.settings.options, norms_only());
  io::JournalWriter journal({.path = folder.journal(), .in_background = false});
  journal.header(controller.units(), controller.options(), "");
  std::size_t recovered = 0;
  for (std::int64_t step = 1; step <= fake.steps_done; ++step) {
    std::int64_t rerun_high = 0;
    for (const io::JournalTrial& trial : fake.trials) rerun_high += trial.step == step ? 4 : 0;
    metrics.write(run::TrainLine{.step = step,
                                 .loss = 5 - 0.01 * static_cast<double>(step),
                                 .applied = step != 3,
                                 .tokens = 8,
                                 .seconds = 0.001 * static_cast<double>(step),
                                 .recovered = static_cast<std::int64_t>(recovered),
                                 .high = static_cast<std::int64_t>(recovered),
                                 .standing = fake.says_why_high ? std::optional<std::int64_t>(0) : std::nullopt,
                                 .rerun_high = fake.says_why_high ? std::optional(rerun_high) : std::nullopt,
                                 .high_cost = fake.says_why_high ? std::optional(0.5) : std::nullopt});
    const bool burst = fake.burst_step > 0 && step >= fake.burst_step && step < fake.burst_step + 3;
    const std::vector<double> norms{burst ? 20.0 : 1.0, 1.0, 1.0, 1.0};
    controller.begin(step);
    const Outcome& outcome = controller.report({.step = step, .norms = norms});
    const Decision& decision = outcome.decision;
    for (const io::JournalTrial& trial : fake.trials) {
      if (trial.step == step) journal.trial(trial);
    }
    journal.step(controller, outcome.alarm, decision);
    recovered = fake.settings.controller == "gnmr" ? decision.recovered.size() : 0;
  }
  if (fake.steps_done == fake.settings.steps) {
    run::EvalLine line{.step = fake.steps_done, .loss_high = fake.loss};
    if (fake.settings.recipe != "none") line.loss_low = fake.loss + 0.5;
    if (fake.settings.recipe != "none" && fake.says_why_high) line.loss_trained = fake.loss + 0.25;
    metrics.write(line);
  }
  metrics.close();
  journal.close();
  if (fake.fault_last > 0) write_fake_faults(fake);
  if (!fake.settings.experiment.harm) return;
  run::HarmWriter harm(folder.harm(), io::ExistingFile::refuse);
  for (const run::HarmLine& line : fake.harm) harm.write(line);
  harm.close();
}

}  // namespace gnmr::test
