// SPDX-License-Identifier: Apache-2.0
// Which rules of a recipe real FP8 hardware can follow, and how.
//
// Goals: questions about rules alone, for every layer that has tensors of its own (gnmr/torch, the Python package).
// Non-goals: shapes and devices (gnmr/kernels/fp8_product.h).
#pragma once

#include "gnmr/recipes/recipe.h"

namespace gnmr::recipes {

/// Whether gnmr/kernels/casts.h can quantize by this rule to FP8 data.
constexpr bool has_fp8_codes(const CastRule& rule) {
  const bool known_grouping = rule.grouping == Grouping::tensor || rule.grouping == Grouping::delayed ||
                              rule.grouping == Grouping::row || rule.grouping == Grouping::tile ||
                              rule.grouping == Grouping::block;
  return (rule.format == formats::Format::e4m3 || rule.format == formats::Format::e5m2) &&
         rule.rounding == formats::Rounding::nearest_even && rule.overflow == formats::Overflow::saturate &&
         rule.hadamard == 0 && known_grouping;
}

/// Whether that holds for every rule of a recipe, those of recovery too, and there is one.
constexpr bool has_fp8_codes(const Recipe& recipe) {
  bool casts = false;
  for (const GemmRecovery& recovery : recipe.recovery) {
    for (const std::optional<CastRule>& rule : recovery.rules) {
      if (rule && !has_fp8_codes(*rule)) return false;
    }
  }
  for (const auto& rules : recipe.rules) {
    for (const std::optional<CastRule>& rule : rules) {
      if (rule && !has_fp8_codes(*rule)) return false;
      casts = casts || rule.has_value();
    }
  }
  return casts;
}

/// Which elements share a scale, as the kernels name it (`Groups` is kernels::CastGroups, which this layer does not
/// see); `is_given`: the scale of delayed scaling is there.
template <class Groups>
constexpr Groups fp8_groups(Grouping grouping, bool is_given) {
  switch (grouping) {
    case Grouping::row:
      return Groups::row;
    case Grouping::tile:
      return Groups::tile;
    case Grouping::block:
      return Groups::block;
    default:
      return is_given ? Groups::given : Groups::tensor;
  }
}

/// Whether quantizing once by this rule serves two GEMMs; `has_both_sides`: it leaves a matrix for each direction.
constexpr bool can_share(const CastRule& rule, bool has_both_sides) {
  return rule.rounding == formats::Rounding::nearest_even && (rule.ignores_direction() || has_both_sides);
}

/// Whether the sums of a GEMM may be kept with fewer bits: gradients are small differences of many numbers, and keep
/// all of theirs.
constexpr bool may_sum_fast(Product product) { return product == Product::forward; }

}  // namespace gnmr::recipes
