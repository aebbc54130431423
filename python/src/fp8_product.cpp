// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/fp8_product.h"

#include "bind.h"
#include "gnmr/recipes/fp8_rule.h"
#include "recipe_places.h"

namespace gnmr::python {
namespace {

using kernels::CastGroups;
using kernels::ElementType;
using kernels::Fp8Facing;
using kernels::Fp8Plan;
using kernels::Multiplier;
using recipes::CastRule;
using recipes::Recipe;

Fp8Facing facing(const CastRule& rule, std::uint64_t rows, std::uint64_t depth) {
  return {.format = rule.format,
          .groups = recipes::fp8_groups<CastGroups>(rule.grouping, false),
          .rows = rows,
          .depth = depth};
}

Fp8Plan plan(const Recipe& recipe, std::size_t product, std::uint64_t rows, std::uint64_t columns, std::uint64_t depth,
             std::uint8_t type) {
  Fp8Plan found = plan_fp8_product(facing(rule_of(recipe, product, 0), rows, depth),
                                   facing(rule_of(recipe, product, 1), columns, depth), static_cast<ElementType>(type),
                                   kernels::fp8_ability());
  found.may_sum_fast = found.may_sum_fast && recipes::may_sum_fast(product_of(product));
  return found;
}

std::string_view name_of(Multiplier by) {
  switch (by) {
    case Multiplier::torch:
      return "torch";
    case Multiplier::own:
      return "own";
    case Multiplier::numbers:
      break;
  }
  return "numbers";
}

}  // namespace

void bind_fp8_product(nb::module_& module) {
  nb::class_<Fp8Plan>(module, "Fp8Plan", "How a GEMM of FP8 data runs on the current device.")
      .def_prop_ro(
          "by", [](const Fp8Plan& self) { return name_of(self.by); },
          "`torch` (_scaled_mm), `own` (multiply_tiles), or `numbers`: nobody multiplies such codes here.")
      .def_ro("sums_fast", &Fp8Plan::may_sum_fast, "torch: sums are kept with fewer bits.")
      .def_ro("spreads_blocks", &Fp8Plan::spreads_blocks,
              "torch: it takes the right side's scales of blocks as those of tiles only.");
  module.def("plan_fp8_product", plan, "recipe"_a, "product"_a, "rows"_a, "columns"_a, "depth"_a, "type"_a,
             "The plan of a recipe's GEMM [rows, columns] that sums over `depth`; type: 0 float32, 1 bfloat16.");
  module.attr("FP8_GROUP") = kernels::kFp8Group;
}

}  // namespace gnmr::python
