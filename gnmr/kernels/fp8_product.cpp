// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/fp8_product.h"

#include "gnmr/kernels/device.h"
#include "gnmr/kernels/tile_product.h"

namespace gnmr::kernels {
namespace {

constexpr std::uint64_t kAlignment = 16;  // of a GEMM's sizes
constexpr int kHopper = 90;

std::uint64_t groups_in(std::uint64_t count) { return (count + kFp8Group - 1) / kFp8Group; }

bool is_one_scale(CastGroups groups) { return groups == CastGroups::tensor || groups == CastGroups::given; }

bool is_in_groups(CastGroups groups) { return groups == CastGroups::tile || groups == CastGroups::block; }

/// Whether rows of blocks have the number that torch takes without gaps between them.
bool has_whole_rows_of_blocks(const Fp8Facing& side) { return groups_in(side.depth) % 4 == 0; }

bool can_multiply(const Fp8Facing& left, const Fp8Facing& right, int compute_capability) {
  const bool both_coarse = left.format == formats::Format::e5m2 && right.format == formats::Format::e5m2;
  const bool both_fine = left.format == formats::Format::e4m3 && right.format == formats::Format::e4m3;
  const bool fits = left.rows % kAlignment == 0 && left.depth % kAlignment == 0 && right.rows % kAlignment == 0;
  if (!fits || both_coarse || compute_capability != kHopper) return false;
  if (is_one_scale(left.groups)) return is_one_scale(right.groups);
  if (left.groups == CastGroups::row) return right.groups == CastGroups::row;
  return both_fine && left.groups == CastGroups::tile && is_in_groups(right.groups);
}

/// Whether our own GEMM is the one to take: torch's is slower where tiles on both sides make a large result, and
/// takes no other numbers of blocks than multiples of four (there would have to be gaps between the rows of scales,
/// which it does not let through).
bool prefers_own_product(const Fp8Facing& left, const Fp8Facing& right) {
  constexpr std::uint64_t kLarge = 40'000'000;  // 13824 x 5120 is, 5120 x 5120 is not (docs/benchmarks.md)
  if (right.groups == CastGroups::tile) return left.rows * right.rows >= kLarge;
  return right.groups == CastGroups::block && !has_whole_rows_of_blocks(right);
}

}  // namespace

Fp8Ability fp8_ability() {
  return {.compute_capability = compute_capability(), .has_tile_product = tile_product_available()};
}

Fp8Plan plan_fp8_product(const Fp8Facing& left, const Fp8Facing& right, std::optional<ElementType> type,
                         const Fp8Ability& ability) {
  if (!can_multiply(left, right, ability.compute_capability)) return {};
  const bool known_type = type == ElementType::float32 || type == ElementType::bfloat16;
  if (known_type && ability.has_tile_product && prefers_own_product(left, right)) return {.by = Multiplier::own};
  return {.by = Multiplier::torch,
          .may_sum_fast = !is_in_groups(right.groups),
          .spreads_blocks = right.groups == CastGroups::block && !has_whole_rows_of_blocks(right)};
}

std::array<std::uint64_t, 2> fp8_scale_shape(CastGroups groups, std::uint64_t rows, std::uint64_t depth) {
  switch (groups) {
    case CastGroups::tensor:
    case CastGroups::given:
      return {1, 1};
    case CastGroups::row:
      return {rows, 1};
    case CastGroups::tile:
      return {groups_in(depth), rows};
    case CastGroups::block:
      break;
  }
  return {groups_in(rows), groups_in(depth)};
}

}  // namespace gnmr::kernels
