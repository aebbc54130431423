// SPDX-License-Identifier: Apache-2.0
#include "gnmr/engine/experiment.h"

#include "gnmr/lab/injection/injection_experiment.h"
#include "gnmr/lab/rivals/make_rule.h"

namespace gnmr::engine {

std::unique_ptr<train::Experiment> make_experiment(const run::TrainSettings& settings,
                                                   const std::vector<std::string>& layer_names) {
  std::unique_ptr<train::GradientRule> rule;
  if (!settings.experiment.rival.empty()) rule = lab::make_rule(settings.experiment.rival);
  return lab::make_experiment(settings, layer_names, std::move(rule));
}

train::RunMakers makers() { return {.plan_model = train::plan_any_model, .make_experiment = make_experiment}; }

}  // namespace gnmr::engine
