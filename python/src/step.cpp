// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/step.h"

#include "bind.h"
#include "values.h"

namespace gnmr::python {

OutcomeValue::OutcomeValue(const Outcome& from)
    : step(from.step),
      decided_step(from.decided_step),
      in_force_from(from.in_force_from),
      action(to_string(from.action)),
      rerun(from.action == Action::rerun ? to_string(from.rerun) : ""),
      verdict(to_string(from.verdict)),
      alarmed(from.alarmed),
      dismissed(from.dismissed),
      spent(from.spent),
      capped(from.capped),
      clip(copied(from.clip)),
      findings(from.findings.begin(), from.findings.end()),
      decision(from.decision) {}

void bind_step(nb::module_& module) {
  nb::class_<StepPlan>(module, "StepPlan", "A step before it runs.")
      .def_ro("step", &StepPlan::step)
      .def_ro("batch", &StepPlan::batch, "from 1; random numbers and data go by it")
      .def_ro("again", &StepPlan::again, "the batch has run before")
      .def_prop_ro(
          "measure", [](const StepPlan& self) { return copied(self.measure); },
          "units in recovery whose low path is to be measured beside the step; to be read before the next call")
      .def_prop_ro(
          "run", [](const StepPlan& self) { return to_string(self.pass); }, "step, replay or trial");
  nb::class_<Finding>(module, "Finding", "A unit with an error above its limit.")
      .def_ro("unit", &Finding::unit)
      .def_ro("site", &Finding::site)
      .def_ro("error", &Finding::error)
      .def_ro("excess", &Finding::excess, "error over its limit");
  nb::class_<OutcomeValue>(module, "Outcome", "What a report came to.")
      .def_ro("step", &OutcomeValue::step)
      .def_ro("decided_step", &OutcomeValue::decided_step, "none: the decision waits for the rerun of this step")
      .def_ro("in_force_from", &OutcomeValue::in_force_from)
      .def_ro("action", &OutcomeValue::action, "apply, hold or rerun")
      .def_ro("rerun", &OutcomeValue::rerun, "with the action rerun: trial or replay")
      .def_ro("verdict", &OutcomeValue::verdict, "none, numeric, common or unlocated")
      .def_ro("alarmed", &OutcomeValue::alarmed, "by norms or errors")
      .def_ro("dismissed", &OutcomeValue::dismissed, "errors of all units did not confirm the alarm of the norms")
      .def_ro("spent", &OutcomeValue::spent, "a rerun was due, but the limit is reached")
      .def_ro("capped", &OutcomeValue::capped, "max_high_share denied the rerun, or a unit that had room otherwise")
      .def_ro("clip", &OutcomeValue::clip, "guard `clip`: coefficient per unit; empty: 1 for all")
      .def_ro("findings", &OutcomeValue::findings, "units with an error above its limit")
      .def_ro("decision", &OutcomeValue::decision);
}

}  // namespace gnmr::python
