// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/host_gate.h"

#include "bind.h"
#include "gnmr/run/supervisor.h"
#include "values.h"

namespace gnmr::python {

void bind_host_gate(nb::module_& module) {
  nb::class_<HostGate>(module, "HostGate",
                       "The gate before an update with lag 1, where the host has the norms: it judges a step while the "
                       "step before is not decided.")
      .def(nb::new_([](const run::Supervisor& supervisor) { return HostGate(supervisor.controller()); }),
           "supervisor"_a, "It goes on with these histories: all steps so far must have been decided.")
      .def(
          "holds",
          [](HostGate& self, const PlanValue& plan, const Doubles& norms, const Bytes& sampled) {
            return self.holds(plan.view(),
                              {.step = plan.plan.step, .norms = span_of(norms), .sampled = span_of(sampled)});
          },
          "plan"_a, "norms"_a, "sampled"_a,
          "Whether the update of the planned step is held. To be asked in every step, in order; the norms enter its "
          "histories.");
}

}  // namespace gnmr::python
