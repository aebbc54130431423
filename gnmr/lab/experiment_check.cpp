// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/experiment_check.h"

#include <fmt/format.h>

#include "gnmr/core/message_text.h"
#include "gnmr/io/json_text.h"
#include "gnmr/lab/experiment/fault_kinds.h"
#include "gnmr/run/setting_checks.h"

namespace gnmr::lab {
namespace {

using run::check_number;
using run::check_whole;
using run::refuse_setting;

/// What makes no sense beside other settings of the run.
void check_combinations(const run::TrainSettings& settings) {
  const ExperimentSettings& experiment = settings.experiment;
  const bool is_late = settings.options.lag == 1 && settings.controller != "none";
  if (is_late && !experiment.rival.empty()) {
    refuse_setting("rival", "`lag` 0 beside it, since it looks at gradients before the update",
                   io::in_quotes(experiment.rival));
  }
  if (!experiment.rival.empty() &&
      (settings.controller == "gnmr" || experiment.oracle || !settings.random_units.empty())) {
    refuse_setting("rival", "`controller` watch or none beside it, without oracle and random_units",
                   io::in_quotes(experiment.rival));
  }
  if ((experiment.oracle || experiment.harm) && settings.granularity != "layer") {
    refuse_setting("granularity", "layer with `oracle` and `harm`: faults are of layers",
                   io::in_quotes(settings.granularity));
  }
}

}  // namespace

void check_experiment(const run::TrainSettings& settings) {
  const ExperimentSettings& experiment = settings.experiment;
  for (const std::string& fault : experiment.faults) {
    if (const std::optional<FaultChoice> choice = parse_fault(fault)) {
      if (experiment.harm && !has_measurable_harm(choice->kind)) {
        refuse_setting("harm", "false with missed-amax and wrong-amax: what they do to a history shows in later steps",
                       "true");
      }
      continue;
    }
    const std::string name = fault.substr(0, fault.find(':'));
    refuse_setting(
        "faults", expected_fault(),
        io::in_quotes(fault) + did_you_mean(name, fault_kinds(), [](const FaultKindSpec& spec) { return spec.name; }));
  }
  check_whole("fault_every", experiment.fault_every, 1, run::kMostSteps);
  check_whole("fault_layers", experiment.fault_layers, 1, run::kMostSteps);
  check_whole("fault_steps", experiment.fault_steps, 1, run::kMostSteps);
  check_whole("fault_from", experiment.fault_from, 1, run::kMostSteps);
  check_number("fault_strength", experiment.fault_strength, {.low = 1, .high = 1e6}, "a number in [1, 1e6]");
  check_whole("transplant_at", experiment.transplant_at, 0, run::kMostSteps);
  check_whole("transplant_channels", experiment.transplant_channels, 1, run::kMostSteps);
  check_number("transplant_factor", experiment.transplant_factor, {.low = 1, .high = 1e6}, "a number in [1, 1e6]");
  check_combinations(settings);
}

void check_settings(const run::TrainSettings& settings) {
  run::validate(settings);
  check_experiment(settings);
}

}  // namespace gnmr::lab
