// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/judge.h"

#include "bind.h"
#include "values.h"

namespace gnmr::python {

HearingValue::HearingValue(const Hearing& from)
    : step(from.step),
      action(to_string(from.action)),
      alarmed(from.alarmed),
      dismissed(from.dismissed),
      spent(from.spent),
      standing_out(copied(from.standing_out)) {}

RulingValue::RulingValue(const Ruling& from)
    : verdict(to_string(from.verdict)),
      action(to_string(from.action)),
      clip(copied(from.clip)),
      decision(from.decision),
      units(copied(from.units)),
      errors(copied(from.errors)),
      excesses(copied(from.excesses)),
      places(copied(from.places)) {}

void bind_judge(nb::module_& module) {
  nb::class_<HearingValue>(module, "Hearing", "What was found after the norms of a step.")
      .def_ro("step", &HearingValue::step)
      .def_ro("action", &HearingValue::action, "proceed, hold, replay or trial")
      .def_ro("alarmed", &HearingValue::alarmed, "by norms or patrol")
      .def_ro("dismissed", &HearingValue::dismissed, "a patrol of all units answered the norms' alarm")
      .def_ro("spent", &HearingValue::spent, "there would have been a rerun, but the cap is reached")
      .def_ro("standing_out", &HearingValue::standing_out, "units whose low paths stand out, by the patrol");
  nb::class_<RulingValue>(module, "Ruling", "The end of a step.")
      .def_ro("verdict", &RulingValue::verdict, "none, numeric, common or unlocated")
      .def_ro("action", &RulingValue::action, "what is to be done with the update: proceed, hold or replay")
      .def_ro("clip", &RulingValue::clip, "guard `clip`: one coefficient a unit; empty: 1 for all")
      .def_ro("decision", &RulingValue::decision)
      .def_ro("units", &RulingValue::units, "whose low paths stood out")
      .def_ro("errors", &RulingValue::errors, "of these, the one that stands out most")
      .def_ro("excesses", &RulingValue::excesses, "error over its limit")
      .def_ro("places", &RulingValue::places, "of which place");
}

}  // namespace gnmr::python
