// SPDX-License-Identifier: Apache-2.0
// The command line `gnmr` as a function: the same flags, help and exit codes.
#include "bind.h"
#include "gnmr/commands.h"

namespace gnmr::python {
namespace {

int run_program(const std::vector<std::string>& arguments) {
  std::vector<const char*> words{"gnmr"};
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  return app::run_program(static_cast<int>(words.size()), words.data());
}

}  // namespace

void bind_program(nb::module_& module) {
  module.attr("HAS_PROGRAM") = true;
  module.def("run_program", run_program, "arguments"_a, nb::call_guard<nb::gil_scoped_release>(),
             "Runs a command as the program `gnmr` does, in this process; its exit code.");
}

}  // namespace gnmr::python
