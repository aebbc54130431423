// SPDX-License-Identifier: Apache-2.0
#include "gnmr/engine/laboratory.h"

#include "gnmr/lab/injection/injection_laboratory.h"
#include "gnmr/lab/rivals/make_rule.h"

namespace gnmr::engine {

std::unique_ptr<train::Laboratory> make_laboratory(const run::TrainSettings& settings,
                                                   const std::vector<std::string>& layer_names) {
  std::unique_ptr<train::GradientRule> rule;
  if (!settings.rival.empty()) rule = lab::make_rule(settings.rival);
  return lab::make_laboratory(settings, layer_names, std::move(rule));
}

}  // namespace gnmr::engine
