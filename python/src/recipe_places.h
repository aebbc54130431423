// SPDX-License-Identifier: Apache-2.0
// Products, operands and places as Python numbers them.
//
// Goals: a number that there is not is an `Error`. Non-goals: what they mean (gnmr/recipes/recipe.h).
#pragma once

#include <cstddef>
#include <optional>

#include "gnmr/core/error.h"
#include "gnmr/kernels/casts.h"
#include "gnmr/recipes/fp8_rule.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::python {

inline recipes::Product product_of(std::size_t number) {
  if (number >= recipes::kProductCount) throw Error("[recipe] expected a GEMM 0, 1 or 2");
  return static_cast<recipes::Product>(number);
}

inline recipes::Operand operand_of(std::size_t number) {
  if (number >= recipes::kOperandCount) throw Error("[recipe] expected an operand 0, 1 or 2");
  return static_cast<recipes::Operand>(number);
}

/// The rule of a cast that there is.
inline const recipes::CastRule& rule_of(const recipes::Recipe& recipe, std::size_t product, std::size_t place) {
  if (place >= 2) throw Error("[recipe] expected a place 0 or 1");
  const std::optional<recipes::CastRule>& rule = recipe.rule(product_of(product), place);
  if (!rule) throw Error("[recipe] `" + recipe.name + "` does not cast this operand: ask `casts` first");
  return *rule;
}

/// What a scale of FP8 data is for, as Python names it.
inline const char* group_name(recipes::Grouping grouping) {
  switch (recipes::fp8_groups<kernels::CastGroups>(grouping, false)) {
    case kernels::CastGroups::row:
      return "row";
    case kernels::CastGroups::tile:
      return "tile";
    case kernels::CastGroups::block:
      return "block";
    default:
      return "tensor";
  }
}

}  // namespace gnmr::python
