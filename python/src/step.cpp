// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/step.h"

#include "bind.h"
#include "values.h"

namespace gnmr::python {
namespace {

nb::bytes bytes_of(const std::vector<std::uint8_t>& values) { return nb::bytes(values.data(), values.size()); }

}  // namespace

PlanValue::PlanValue(const StepPlan& from)
    : plan(from), measure(copied(from.measure)), gate_flags(copied(from.gate_flags)) {
  plan.path = {};
  plan.recovered = plan.measure = {};
  plan.gate_flags = {};
  plan.error_limits = {};
}

StepPlan PlanValue::view() const {
  StepPlan seen = plan;
  seen.measure = measure;
  seen.gate_flags = gate_flags;
  return seen;
}

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
  nb::class_<PlanValue>(module, "StepPlan", "A step before it runs.")
      .def_prop_ro("step", [](const PlanValue& self) { return self.plan.step; })
      .def_prop_ro(
          "batch", [](const PlanValue& self) { return self.plan.batch; }, "from 1; random numbers and data go by it")
      .def_prop_ro(
          "again", [](const PlanValue& self) { return self.plan.again; }, "the batch has run before")
      .def_ro("measure", &PlanValue::measure, "units in recovery whose low path is to be measured beside the step")
      .def_prop_ro(
          "may_hold", [](const PlanValue& self) { return self.plan.hold != HoldRule::never; },
          "lag 1: whether a gate may hold the update")
      .def_prop_ro(
          "gate_flags", [](const PlanValue& self) { return bytes_of(self.gate_flags); },
          "lag 1: what a gate knows, one byte per unit")
      .def_prop_ro(
          "run", [](const PlanValue& self) { return to_string(self.plan.pass); }, "step, replay or trial");
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
      .def_ro("spent", &OutcomeValue::spent, "a rerun was due, but a limit is reached, or no place is free")
      .def_ro("capped", &OutcomeValue::capped, "max_high_share denied the rerun, or a unit that had room otherwise")
      .def_ro("clip", &OutcomeValue::clip, "guard `clip`: coefficient per unit; empty: 1 for all")
      .def_ro("findings", &OutcomeValue::findings, "units with an error above its limit")
      .def_ro("decision", &OutcomeValue::decision);
}

}  // namespace gnmr::python
