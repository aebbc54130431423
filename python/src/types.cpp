// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/types.h"

#include "bind.h"
#include "gnmr/io/glob.h"
#include "values.h"

namespace gnmr::python {

DecisionValue::DecisionValue(const Decision& from)
    : step(from.step),
      common(from.common),
      recovered(copied(from.recovered)),
      admitted(copied(from.admitted)),
      denied(copied(from.denied)),
      futile(copied(from.futile)),
      released(copied(from.released)),
      standing(copied(from.standing)),
      recovered_cost(from.recovered_cost) {}

void bind_types(nb::module_& module) {
  nb::class_<Unit>(module, "Unit", "What can be sent back to high precision on its own.")
      .def(
          "__init__",
          [](Unit* self, std::string name, std::int64_t cost, std::string group, bool forced) {
            new (self) Unit{std::move(name), cost, std::move(group), forced};
          },
          "name"_a, "cost"_a = 1, "group"_a = "", nb::kw_only(), "forced"_a = false)
      .def_ro("name", &Unit::name, "unique, not empty")
      .def_ro("cost", &Unit::cost, ">= 1, say multiply-adds")
      .def_ro("group", &Unit::group, "a block, a pipeline stage; empty: none")
      .def_ro("forced", &Unit::forced, "kept high or low by the user: watched, but no candidate and in no budget")
      .def("__repr__", [](const Unit& self) {
        return "Unit('" + self.name + "', cost=" + std::to_string(self.cost) + ", group='" + self.group + "')";
      });
  nb::class_<DecisionValue>(module, "Decision", "The decision of one step; units by their numbers, ascending.")
      .def_ro("step", &DecisionValue::step)
      .def_ro("common", &DecisionValue::common, "the cause is common to the units: nothing was admitted for it")
      .def_ro("recovered", &DecisionValue::recovered, "in recovery in the next step")
      .def_ro("admitted", &DecisionValue::admitted)
      .def_ro("denied", &DecisionValue::denied, "wanted recovery, and there was no room")
      .def_ro("futile", &DecisionValue::futile, "released, and still as bad as before")
      .def_ro("released", &DecisionValue::released, "the futile ones included")
      .def_ro("standing", &DecisionValue::standing, "of `recovered`, those in standing recovery")
      .def_ro("recovered_cost", &DecisionValue::recovered_cost);
  nb::class_<Signals>(module, "Signals", "The signals of one unit in one step; NaN: not defined.")
      .def_ro("sampled", &Signals::sampled)
      .def_prop_ro("risk", [](const Signals& self) { return to_string(self.risk); })
      .def_ro("ratio", &Signals::ratio, "GNMR")
      .def_ro("delta", &Signals::delta, "Delta-GNMR")
      .def_ro("fall", &Signals::fall, "Fall-GNMR")
      .def_ro("severity", &Signals::severity, "above 1: at risk, if warm");
  module.def("glob_matches", &io::glob_matches, "glob"_a, "name"_a,
             "Whether all of a name fits: `*` is any text, `?` any one byte, upper and lower case alike.");
}

}  // namespace gnmr::python
