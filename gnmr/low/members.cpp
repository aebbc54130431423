// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/members.h"

#include <algorithm>
#include <string>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/recipes/fp8_rule.h"

namespace gnmr::low {
namespace {

using recipes::Grouping;

constexpr auto kGroup = static_cast<std::int64_t>(kernels::kFp8Group);

/// A member's scales: the first one's index among those of all members, and their shape.
struct ScalePlace {
  std::int64_t first;
  std::int64_t rows;
  std::int64_t columns;
};

/// Of the member's rows [first, first + count) of a matrix with so many columns.
ScalePlace scale_place(Grouping grouping, Layout layout, std::int64_t first, std::int64_t count, std::int64_t columns,
                       std::size_t member) {
  const bool by_rows = layout == Layout::by_rows;
  const auto shape = kernels::fp8_scale_shape(recipes::fp8_groups<kernels::CastGroups>(grouping, false),
                                              static_cast<std::uint64_t>(by_rows ? count : columns),
                                              static_cast<std::uint64_t>(by_rows ? columns : count));
  const auto height = static_cast<std::int64_t>(shape[0]);
  const auto width = static_cast<std::int64_t>(shape[1]);
  const auto index = static_cast<std::int64_t>(member);
  const std::int64_t groups_before = first / kGroup + index;
  switch (grouping) {
    case Grouping::row:
      return {by_rows ? first : index * columns, height, width};
    case Grouping::tile:
      return {by_rows ? height * first : groups_before * columns, height, width};
    case Grouping::block:
      return {groups_before * (by_rows ? width : height), height, width};
    default:
      return {index, height, width};
  }
}

[[noreturn]] void refuse(const std::string& what) { throw Error("[members] expected " + what); }

}  // namespace

void Members::check(std::int64_t rows, std::int64_t weight_rows) const {
  if (is_one() && count() == 1) return;
  const auto members = std::to_string(count());
  if (count() == 0) refuse("at least one member");
  const std::span<const std::int32_t> offsets = rows_.offsets;
  if (offsets.size() != count() + 1) {
    refuse(std::to_string(count() + 1) + " row offsets for " + members + " members, got " +
           std::to_string(offsets.size()));
  }
  if (rows_.place != Place::host) refuse("row offsets in host memory: those on a device are not supported yet");
  if (offsets.front() != 0) refuse("row offsets from 0, got " + std::to_string(offsets.front()));
  for (std::size_t member = 0; member < count(); ++member) {
    if (offsets[member] <= offsets[member + 1]) continue;
    refuse("ascending row offsets, got " + std::to_string(offsets[member + 1]) + " after " +
           std::to_string(offsets[member]) + " (member " + std::to_string(member) + ")");
  }
  if (offsets.back() != rows) {
    refuse("row offsets up to the number of rows, " + std::to_string(rows) + ", got " + std::to_string(offsets.back()));
  }
  if (weight_rows % static_cast<std::int64_t>(count()) != 0) {
    refuse("a weight of as many rows for each of " + members + " members, got " + std::to_string(weight_rows) +
           " rows");
  }
  for (const LinearPaths& paths : paths_) {
    if (paths.recipe != layer().recipe || paths.hook != layer().hook || paths.save_low != layer().save_low) {
      refuse("members with one recipe, one hook and inputs saved alike");
    }
  }
}

Members::Rows Members::rows_of(Split split, std::size_t member, std::int64_t all) const {
  if (split == Split::by_offsets) {
    return {rows_.offsets[member], std::int64_t{rows_.offsets[member + 1]} - rows_.offsets[member]};
  }
  const std::int64_t each = all / static_cast<std::int64_t>(count());
  return {static_cast<std::int64_t>(member) * each, each};
}

std::int64_t Members::all_rows(Split split, std::int64_t part_rows) const {
  return split == Split::by_offsets ? rows_.offsets.back() : part_rows * static_cast<std::int64_t>(count());
}

Matrix Members::part(const FrontEnd& front_end, const Matrix& all, Split split, std::size_t member,
                     Layout layout) const {
  if (is_one() || !all.defined()) return all;
  const bool by_rows = layout == Layout::by_rows;
  const std::int64_t columns = by_rows ? all.columns : all.rows;
  const auto [first, count] = rows_of(split, member, by_rows ? all.rows : all.columns);
  return front_end.part(all, first * columns, by_rows ? count : columns, by_rows ? columns : count);
}

void Members::place(const FrontEnd& front_end, Matrix part, Split split, std::size_t member, Matrix& all,
                    Layout layout) const {
  if (is_one()) {
    all = std::move(part);
    return;
  }
  const bool by_rows = layout == Layout::by_rows;
  if (!all.defined()) {
    const std::int64_t rows = all_rows(split, by_rows ? part.rows : part.columns);
    all = front_end.empty(part, part.type, by_rows ? rows : part.rows, by_rows ? part.columns : rows);
  }
  front_end.copy_into(part, this->part(front_end, all, split, member, layout));
}

Fp8Side Members::side_part(const FrontEnd& front_end, const Fp8Side& all, Grouping grouping, Split split,
                           std::size_t member, Layout layout) const {
  if (!all.codes.defined()) return {};
  const bool by_rows = layout == Layout::by_rows;
  const auto [first, count] = rows_of(split, member, by_rows ? all.codes.rows : all.codes.columns);
  const ScalePlace place =
      scale_place(grouping, layout, first, count, by_rows ? all.codes.columns : all.codes.rows, member);
  const Matrix scales = front_end.part(all.scales, place.first, place.rows, place.columns);
  // GEMMs want a single scale at an alignment of its own.
  return {part(front_end, all.codes, split, member, layout), scales.count() == 1 ? front_end.copy(scales) : scales};
}

void Members::place_side(const FrontEnd& front_end, const Fp8Side& part, Grouping grouping, Split split,
                         std::size_t member, Layout layout, Fp8Side& all) const {
  if (!part.codes.defined()) return;
  const bool by_rows = layout == Layout::by_rows;
  place(front_end, part.codes, split, member, all.codes, layout);
  const std::int64_t columns = by_rows ? part.codes.columns : part.codes.rows;
  const std::int64_t rows = by_rows ? all.codes.rows : all.codes.columns;
  if (!all.scales.defined()) {
    // Those of a member after the last one would begin there.
    const ScalePlace end = scale_place(grouping, layout, rows, 0, columns, count());
    all.scales = front_end.empty_vector(part.scales, part.scales.type, end.first);
  }
  const auto [first, count] = rows_of(split, member, rows);
  const ScalePlace place = scale_place(grouping, layout, first, count, columns, member);
  front_end.copy_into(front_end.part(part.scales, 0, place.rows, place.columns),
                      front_end.part(all.scales, place.first, place.rows, place.columns));
}

LowOperand Members::part(const FrontEnd& front_end, const LowOperand& all, Split split, std::size_t member) const {
  if (is_one() || !all.defined()) return all;
  if (all.values.defined()) return {.values = part(front_end, all.values, split, member)};
  const Grouping grouping = all.codes.grouping;
  return {
      .codes = {.by_rows = side_part(front_end, all.codes.by_rows, grouping, split, member, Layout::by_rows),
                .by_columns = side_part(front_end, all.codes.by_columns, grouping, split, member, Layout::by_columns),
                .grouping = grouping}};
}

LowOperand Members::joined(const FrontEnd& front_end, std::span<const LowOperand> parts, Split split) const {
  const bool as_numbers =
      std::any_of(parts.begin(), parts.end(), [](const LowOperand& part) { return part.values.defined(); });
  LowOperand all;
  for (std::size_t member = 0; member < parts.size(); ++member) {
    const LowOperand& part = parts[member];
    if (!part.defined()) continue;
    if (as_numbers) {
      const SumOver faces = part.codes.by_rows.codes.defined() ? SumOver::columns : SumOver::rows;
      place(front_end, values_for(front_end, part, faces), split, member, all.values);
      continue;
    }
    all.codes.grouping = part.codes.grouping;
    place_side(front_end, part.codes.by_rows, part.codes.grouping, split, member, Layout::by_rows, all.codes.by_rows);
    place_side(front_end, part.codes.by_columns, part.codes.grouping, split, member, Layout::by_columns,
               all.codes.by_columns);
  }
  return all;
}

}  // namespace gnmr::low
