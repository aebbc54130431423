// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/error.h"

#include <stdexcept>

#include "bind.h"

namespace gnmr::python {

void bind_error(nb::module_& module) {
  auto error = nb::exception<Error>(module, "Error", PyExc_ValueError);
  error.doc() = "Something the caller can mend: the text says what was expected and what came; nothing has changed.";
  // Formats know the standard library only.
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* type) {
        try {
          std::rethrow_exception(thrown);
        } catch (const std::invalid_argument& wrong) {
          PyErr_SetString(static_cast<PyObject*>(type), wrong.what());
        }
      },
      error.ptr());
}

}  // namespace gnmr::python
