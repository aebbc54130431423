// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/compare.h"

#include "bind.h"

namespace gnmr::python {
namespace {

using kernels::ResultView;

ResultView view_of(std::uint64_t data, std::uint8_t type) {
  return {address(data), static_cast<kernels::ElementType>(type)};
}

}  // namespace

void bind_compare(nb::module_& module) {
  module.def("compare_workspace_bytes", &kernels::compare_workspace_bytes, "count"_a,
             "Device memory that `add_error` and `add_square` of so many elements work in.");
  module.def(
      "add_error",
      [](std::uint64_t low, std::uint8_t low_type, std::uint64_t high, std::uint8_t high_type, std::uint64_t count,
         std::uint64_t totals, std::uint64_t workspace, std::uint64_t stream) {
        kernels::add_error(view_of(low, low_type), view_of(high, high_type), count,
                           address<kernels::ErrorTotals>(totals), address(workspace), address(stream));
      },
      "low"_a, "low_type"_a, "high"_a, "high_type"_a, "count"_a, "totals"_a, "workspace"_a, "stream"_a,
      nb::call_guard<nb::gil_scoped_release>(),
      "Queues: to three doubles at `totals` in device memory come the squares of low - high, those of high, and 1. "
      "Nothing is added where high is not finite. Types: 0 float32, 1 bfloat16.");
  module.def(
      "add_square",
      [](std::uint64_t matrix, std::uint8_t type, std::uint64_t count, std::uint64_t sum, std::uint64_t workspace,
         std::uint64_t stream) {
        kernels::add_square(view_of(matrix, type), count, address<double>(sum), address(workspace), address(stream));
      },
      "matrix"_a, "type"_a, "count"_a, "sum"_a, "workspace"_a, "stream"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Queues: the squares of all elements come to a double at `sum` in device memory.");
}

}  // namespace gnmr::python
