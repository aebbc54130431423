// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/trace.h"

#include <memory>

#include "bind.h"
#include "gnmr/core/types.h"
#include "gnmr/io/units_json.h"

namespace gnmr::python {
namespace {

struct TraceRowValue {
  std::int64_t step;
  std::vector<double> norms;
  std::vector<std::uint8_t> sampled;
};

/// A reader that owns what Python holds.
struct Trace {
  std::unique_ptr<io::TraceReader> reader;
};

template <class Number>
View<const Number> view_of(const std::vector<Number>& values, nb::handle owner) {
  return View<const Number>(values.data(), {values.size()}, owner);
}

}  // namespace

void bind_trace(nb::module_& module) {
  nb::class_<TraceRowValue>(module, "TraceRow", "The norms of one step.")
      .def_ro("step", &TraceRowValue::step)
      .def_prop_ro(
          "norms", [](const TraceRowValue& self) { return view_of(self.norms, nb::find(self)); },
          nb::sig("def norms(self) -> memoryview"), "One per unit; 0 where there is no sample.")
      .def_prop_ro(
          "sampled", [](const TraceRowValue& self) { return view_of(self.sampled, nb::find(self)); },
          nb::sig("def sampled(self) -> memoryview"), "One per unit, 0: no sample.");
  nb::class_<Trace>(module, "Trace",
                    "Gradient norms of a run, from a CSV file or from other people's logs; gives a row per step.")
      .def(
          "__init__",
          [](Trace* self, const std::string& path, const std::string& run) {
            new (self) Trace{io::open_trace(path, {.run = run})};
          },
          "path"_a, nb::kw_only(), "run"_a = "",
          "`run` names one where a W&B export or a folder of TensorBoard runs has several.")
      .def_prop_ro("units", [](const Trace& self) { return self.reader->units(); })
      .def(
          "__iter__", [](nb::handle self) { return nb::borrow(self); }, nb::sig("def __iter__(self) -> Trace"))
      .def("__next__", [](Trace& self) {
        io::TraceRow row;
        if (!self.reader->next(row)) throw nb::stop_iteration();
        return TraceRowValue{row.step, copied(row.norms), copied(row.sampled)};
      });
  module.def("read_units", &io::read_units, "path"_a, "names"_a,
             "Costs and groups of a trace's units from a units file.");
}

}  // namespace gnmr::python
