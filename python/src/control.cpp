// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/pair.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>

#include "bind.h"
#include "gnmr/run/control_file.h"
#include "gnmr/run/control_signals.h"

namespace gnmr::python {
namespace {

using run::ControlFile;
using run::ControlSignals;

std::optional<std::string> word_of(std::optional<Mode> mode) {
  if (!mode) return {};
  return std::string(to_string(*mode));
}

}  // namespace

void bind_control(nb::module_& module) {
  nb::class_<ControlFile>(module, "ControlFile", "The kill switch: a file whose first word is armed, watch or high.")
      .def(nb::init<std::string>(), "path"_a)
      .def(
          "poll",
          [](ControlFile& self) -> std::optional<std::pair<std::optional<std::string>, std::string>> {
            const std::optional<run::ControlNews> news = self.poll();
            if (!news) return {};
            return std::pair{word_of(news->mode), news->note};
          },
          "What was written since the last look: a mode or None, and what is wrong with the file or nothing.");
  nb::class_<ControlSignals>(module, "ControlSignals",
                             "While it lives SIGUSR1 asks for watch and SIGUSR2 for high; afterwards they do what they "
                             "did before. One at a time in a process.")
      .def(nb::new_([] { return std::make_unique<ControlSignals>(run::TakenSignals::modes); }))
      .def(
          "take_mode", [](ControlSignals& self) { return word_of(self.take_mode()); },
          "The mode that a signal has asked for since the last call, if one has.");
}

}  // namespace gnmr::python
