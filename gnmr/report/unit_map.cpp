// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/unit_map.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "gnmr/io/text_error.h"

namespace gnmr::report {
namespace {

void check_kind(MapKind kind, const io::SignalsReader& reader, const std::string& path) {
  if ((kind == MapKind::errors) == (reader.sites() > 0)) return;
  throw io::error_at(path, kind == MapKind::errors ? "[signals] expected errors per site, these are ratios"
                                                   : "[signals] expected ratios, these are errors per site");
}

std::size_t width_of(const io::SignalsReader& reader) { return std::max<std::size_t>(reader.sites(), 1); }

/// The number of a unit that is shown: of several the largest.
float value_of(const io::SignalsRow& row, std::size_t unit, std::size_t width) {
  float worst = row.values[unit * width];
  for (std::size_t site = 1; site < width; ++site) {
    const float value = row.values[unit * width + site];
    if (std::isnan(worst) || value > worst) worst = value;
  }
  return worst;
}

/// What decides which of two numbers is shown; 0 where there is none.
double weight_of(MapKind kind, float value) {
  if (kind == MapKind::ratios) return distance_from_one(value);
  return std::isnan(value) ? 0 : std::max(0.0, static_cast<double>(value));
}

/// The rows that count, as steps and numbers: a step that goes back is of a resumed run, and later steps of the earlier
/// attempt no longer count.
using CountingRows = std::vector<std::pair<std::int64_t, std::size_t>>;

void add_row(std::int64_t step, std::size_t number, CountingRows& rows) {
  while (!rows.empty() && rows.back().first >= step) rows.pop_back();
  rows.emplace_back(step, number);
}

std::vector<std::size_t> choose_units(std::span<const double> farthest, std::span<const std::uint64_t> events,
                                      std::size_t most) {
  std::vector<std::size_t> units(farthest.size());
  std::iota(units.begin(), units.end(), std::size_t{0});
  if (units.size() <= most) return units;
  const auto count_of = [&](std::size_t unit) { return unit < events.size() ? events[unit] : 0; };
  std::stable_sort(units.begin(), units.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(count_of(a), farthest[a]) > std::pair(count_of(b), farthest[b]);
  });
  units.resize(most);
  std::sort(units.begin(), units.end());
  return units;
}

// Unsigned, since steps of a damaged file may be as far apart as numbers can be.
std::uint64_t distance(std::int64_t from, std::int64_t to) {
  return static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from);
}

std::uint64_t usual_gap(const std::vector<std::int64_t>& steps) {
  std::vector<std::uint64_t> gaps;
  for (std::size_t i = 1; i < steps.size(); ++i) gaps.push_back(distance(steps[i - 1], steps[i]));
  if (gaps.empty()) return 1;
  const auto middle = gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2);
  std::nth_element(gaps.begin(), middle, gaps.end());
  return *middle;
}

void choose_columns(const std::vector<std::int64_t>& steps, std::size_t most, UnitMap& map) {
  if (steps.empty()) return;
  const std::uint64_t range = distance(steps.front(), steps.back());
  const std::uint64_t least = range / most + 1;
  const std::uint64_t width = std::max(usual_gap(steps), least);
  map.first_step = steps.front();
  map.column_steps = static_cast<std::int64_t>(std::min<std::uint64_t>(width, std::uint64_t{1} << 62U));
  map.columns = static_cast<std::size_t>(range / static_cast<std::uint64_t>(map.column_steps)) + 1;
}

}  // namespace

double distance_from_one(float ratio) {
  if (std::isnan(ratio)) return 0;
  if (!std::isfinite(ratio) || ratio <= 0) return std::numeric_limits<double>::infinity();
  return std::abs(std::log2(static_cast<double>(ratio)));
}

RowSurvey survey_rows(const std::string& path, MapKind kind) {
  io::SignalsReader reader(path);
  check_kind(kind, reader, path);
  const std::size_t width = width_of(reader);
  RowSurvey survey;
  CountingRows rows;
  std::size_t count = 0;
  for (io::SignalsRow row; reader.next(row); ++count) {
    add_row(row.step, count, rows);
    // Not by the header's count, which may be damaged: a row that was read is as large as it says.
    survey.farthest.resize(row.values.size() / width, 0.0);
    for (std::size_t unit = 0; unit < survey.farthest.size(); ++unit) {
      survey.farthest[unit] = std::max(survey.farthest[unit], weight_of(kind, value_of(row, unit, width)));
    }
  }
  survey.counts.assign(count, 0);
  for (const auto& [step, row] : rows) {
    survey.counts[row] = 1;
    survey.steps.push_back(step);
  }
  return survey;
}

UnitMapPainter::UnitMapPainter(MapKind kind, const io::SignalsReader& reader, const RowSurvey& survey,
                               std::span<const std::uint64_t> events, const UnitMapLimits& limits)
    : kind_(kind), width_(width_of(reader)) {
  map_.torn = reader.torn();
  map_.unit_count = reader.unit_count();
  map_.units = choose_units(survey.farthest, events, limits.rows);
  choose_columns(survey.steps, limits.columns, map_);
  map_.values.assign(map_.units.size() * map_.columns, std::numeric_limits<float>::quiet_NaN());
}

void UnitMapPainter::take(const io::SignalsRow& row) {
  const std::uint64_t offset = distance(map_.first_step, row.step);
  const auto column = static_cast<std::size_t>(offset / static_cast<std::uint64_t>(map_.column_steps));
  for (std::size_t i = 0; i < map_.units.size(); ++i) {
    float& cell = map_.values[i * map_.columns + column];
    const float value = value_of(row, map_.units[i], width_);
    if (std::isnan(cell) || weight_of(kind_, value) > weight_of(kind_, cell)) cell = value;
  }
}

UnitMap read_unit_map(const std::string& path, MapKind kind, std::span<const std::uint64_t> events,
                      const UnitMapLimits& limits) {
  const RowSurvey survey = survey_rows(path, kind);
  io::SignalsReader reader(path);
  UnitMapPainter painter(kind, reader, survey, events, limits);
  for_rows_that_count(reader, survey, [&](const io::SignalsRow& row) { painter.take(row); });
  return painter.finish();
}

}  // namespace gnmr::report
