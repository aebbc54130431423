// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/casts.h"

#include <nanobind/stl/pair.h>

#include <utility>

#include "bind.h"
#include "gnmr/kernels/casts_reference.h"
#include "gnmr/recipes/fp8_rule.h"
#include "recipe_places.h"

namespace gnmr::python {
namespace {

using kernels::CastTask;
using recipes::CastRule;
using recipes::Recipe;

/// Addresses of codes and of scales; 0: not wanted.
using Places = std::pair<std::uint64_t, std::uint64_t>;

CastTask make_task(const Recipe& recipe, std::size_t product, std::size_t place, std::uint64_t matrix,
                   std::uint8_t type, std::uint64_t rows, std::uint64_t columns, Places by_rows, Places by_columns,
                   std::uint64_t given_scale, std::uint64_t amax) {
  const CastRule& rule = rule_of(recipe, product, place);
  if (!recipes::has_fp8_codes(rule)) throw Error("[casts] `" + recipe.name + "` leaves no FP8 codes of this operand");
  const bool is_given = given_scale != 0 && rule.grouping == recipes::Grouping::delayed;
  const auto output = [](Places places) {
    return kernels::CastOutput{.codes = address<std::uint8_t>(places.first), .scales = address<float>(places.second)};
  };
  return {.matrix = address(matrix),
          .type = static_cast<kernels::ElementType>(type),
          .rows = rows,
          .columns = columns,
          .format = rule.format,
          .groups = recipes::fp8_groups<kernels::CastGroups>(rule.grouping, is_given),
          .given_scale = address<float>(is_given ? given_scale : 0),
          .by_rows = output(by_rows),
          .by_columns = output(by_columns),
          .amax = address<float>(amax)};
}

}  // namespace

void bind_casts(nb::module_& module) {
  nb::class_<CastTask>(module, "Fp8Cast",
                       "A cast of a matrix to FP8 codes, as the operand of a recipe's product; both directions out of "
                       "one read. Addresses are of device memory that lives until the stream has passed.")
      .def(nb::new_(&make_task), "recipe"_a, "product"_a, "place"_a, "matrix"_a, "type"_a, "rows"_a, "columns"_a,
           "by_rows"_a = Places{}, "by_columns"_a = Places{}, "given_scale"_a = 0, "amax"_a = 0,
           "A matrix without gaps of float32 (type 0) or bfloat16 (1). `by_rows` and `by_columns`: where codes and "
           "scales go, of the matrix and of the transposed one; 0: not wanted. `given_scale`: that of delayed scaling, "
           "0: that of the matrix itself. `amax`: where the largest finite magnitude goes; 0: not wanted.")
      .def_prop_ro(
          "scale_counts",
          [](const CastTask& self) {
            return std::pair(kernels::scale_count(self, self.by_rows, false),
                             kernels::scale_count(self, self.by_columns, true));
          },
          "How many numbers the scales by rows and by columns are.")
      .def_prop_ro("workspace_bytes", &kernels::cast_workspace_bytes, "Device memory that it works in.")
      .def(
          "run",
          [](const CastTask& self, std::uint64_t workspace, std::uint64_t stream) {
            kernels::cast_to_fp8(self, address(workspace), address(stream));
          },
          "workspace"_a, "stream"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Queues the cast; without codes only the amax is found.")
      .def("run_on_host", &kernels::reference_cast, nb::call_guard<nb::gil_scoped_release>(),
           "The same with all addresses in host memory: slow, for tests.");
}

}  // namespace gnmr::python
