// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/patrol.h"

#include "bind.h"

namespace gnmr::python {

void bind_patrol(nb::module_& module) {
  module.def(
      "patrol_cost",
      [](std::int64_t tokens, std::int64_t inputs, std::int64_t outputs, double element_bytes, bool on_device) {
        return low::patrol_cost({tokens, inputs, outputs, element_bytes, on_device});
      },
      "tokens"_a, "inputs"_a, "outputs"_a, "element_bytes"_a, "on_device"_a,
      "What a patrol of a linear layer costs in a micro-batch, in multiply-adds.");
  module.attr("SURVEY_STEPS") = low::kSurveySteps;
  module.def(
      "patrol_rounds",
      [](const std::vector<double>& costs, double all, double share) {
        return low::patrol_rounds(costs, all, share).round_of;
      },
      "costs"_a, "all"_a, "share"_a,
      "The round of each layer with such a cost, in steps of `all` multiply-adds: at most `share` of them per round, "
      "but at least one layer. 0: no rounds, an empty list; 1: one round.");
}

}  // namespace gnmr::python
