// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/function.h>

#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "bind.h"
#include "gnmr/lab/high_plan.h"
#include "gnmr/run/supervisor.h"

namespace gnmr::python {
namespace {

using lab::PlannedUnit;

/// A plan, and what its errors are called.
struct NamedPlan {
  lab::HighPlan plan;
  std::vector<std::string> places;

  std::vector<std::string> high() const {
    std::vector<std::string> names;
    for (const PlannedUnit& unit : plan.units) {
      if (unit.chosen) names.push_back(unit.name);
    }
    return names;
  }
};

NamedPlan make_plan(const run::Supervisor& supervisor, std::vector<std::string> places) {
  const Controller& controller = supervisor.controller();
  return {lab::plan_high_units(controller.units(), controller.save(), controller.options()), std::move(places)};
}

}  // namespace

void bind_plan(nb::module_& module) {
  nb::class_<PlannedUnit>(module, "PlannedUnit", "One unit of a plan.")
      .def_ro("name", &PlannedUnit::name)
      .def_ro("errors", &PlannedUnit::errors, "usual ones, per place; NaN: not measured often enough")
      .def_prop_ro(
          "above_median",
          [](const PlannedUnit& self) {
            return self.above > 0 ? self.above : std::numeric_limits<double>::quiet_NaN();
          },
          "largest error over the median of its place; NaN: none is known")
      .def_prop_ro(
          "coarse", [](const PlannedUnit& self) { return self.is_coarse(); },
          "its error is far above that of the others")
      .def_prop_ro(
          "fills", [](const PlannedUnit& self) { return self.fills(); },
          "it is not coarse, but others are, and its error is large: it is high where the budget has room")
      .def_ro("high", &PlannedUnit::chosen, "the plan keeps it high")
      .def_ro("cost_share", &PlannedUnit::cost_share);
  nb::class_<NamedPlan>(module, "HighPlan", "Which units should always run high; prints as a table.")
      .def_prop_ro(
          "units", [](const NamedPlan& self) { return self.plan.units; }, "in forward order")
      .def_ro("places", &NamedPlan::places, "what the errors of a unit are called")
      .def_prop_ro("high", &NamedPlan::high, "names of the units that should always run high")
      .def_prop_ro(
          "cost_share", [](const NamedPlan& self) { return self.plan.cost_share; }, "their multiply-adds, of all")
      .def_prop_ro(
          "removed_share", [](const NamedPlan& self) { return self.plan.removed_share; },
          "of the squared errors above the median, those of these units")
      .def_prop_ro(
          "unmeasured", [](const NamedPlan& self) { return self.plan.unmeasured; }, "units, not measured often enough")
      .def(
          "filter_fn",
          [](const NamedPlan& self) -> std::function<bool(nb::handle, const std::string&)> {
            const std::vector<std::string> names = self.high();
            return [high = std::set<std::string>(names.begin(), names.end())](nb::handle, const std::string& name) {
              return !high.contains(name);
            };
          },
          nb::sig("def filter_fn(self) -> collections.abc.Callable[[object, str], bool]"),
          "A module_filter_fn for torchao's convert_to_float8_training: these units stay in high precision.")
      .def("__str__", [](const NamedPlan& self) { return lab::plan_table(self.plan, self.places); })
      .def("__repr__", [](const NamedPlan& self) { return lab::plan_table(self.plan, self.places); });
  module.def("plan_high_units", make_plan, "supervisor"_a, "places"_a,
             "The plan by the errors that a run has measured so far; `places`: what these are called.");
}

}  // namespace gnmr::python
