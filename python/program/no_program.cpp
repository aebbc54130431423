// SPDX-License-Identifier: Apache-2.0
// In the place of program.cpp where the command line is not built.
#include "bind.h"

namespace gnmr::python {

void bind_program(nb::module_& module) {
  module.attr("HAS_PROGRAM") = false;
  module.def(
      "run_program",
      [](const std::vector<std::string>&) -> int {
        throw Error(
            "this build of gnmr has no command line: pip install . -C cmake.define.GNMR_BUILD_APPS=ON, or `make build` "
            "and PYTHONPATH=build/python");
      },
      "arguments"_a, "Runs a command as the program `gnmr` does; not in this build.");
}

}  // namespace gnmr::python
