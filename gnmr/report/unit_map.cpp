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

/// What the first reading finds: which rows count, and how far each unit strays.
struct Survey {
  std::vector<std::int64_t> steps;   // of the rows that count, ascending
  std::vector<std::uint8_t> counts;  // one per row of the file
  std::vector<double> farthest;      // one per unit; empty where there is no row
};

/// How a row becomes one number per unit.
class UnitValues {
 public:
  UnitValues(MapKind kind, const io::SignalsReader& reader, const std::string& path)
      : kind_(kind), width_(std::max<std::size_t>(reader.sites(), 1)) {
    if ((kind == MapKind::errors) == (reader.sites() > 0)) return;
    throw io::error_at(path, kind == MapKind::errors ? "[signals] expected errors per site, these are ratios"
                                                     : "[signals] expected ratios, these are errors per site");
  }

  // Not by the header's count, which may be damaged: a row that was read is as large as it says.
  std::size_t units_in(const io::SignalsRow& row) const { return row.values.size() / width_; }

  float of(const io::SignalsRow& row, std::size_t unit) const {
    float worst = row.values[unit * width_];
    for (std::size_t site = 1; site < width_; ++site) {
      const float value = row.values[unit * width_ + site];
      if (std::isnan(worst) || value > worst) worst = value;
    }
    return worst;
  }

  /// What decides which of two numbers is shown; 0 where there is none.
  double weight(float value) const {
    if (kind_ == MapKind::ratios) return distance_from_one(value);
    return std::isnan(value) ? 0 : std::max(0.0, static_cast<double>(value));
  }

 private:
  MapKind kind_;
  std::size_t width_;  // numbers per unit
};

/// The rows that count, as steps and numbers: a step that goes back is of a resumed run, and later steps of the earlier
/// attempt no longer count.
using CountingRows = std::vector<std::pair<std::int64_t, std::size_t>>;

void add_row(std::int64_t step, std::size_t number, CountingRows& rows) {
  while (!rows.empty() && rows.back().first >= step) rows.pop_back();
  rows.emplace_back(step, number);
}

Survey survey_rows(io::SignalsReader reader, const UnitValues& values) {
  Survey survey;
  CountingRows rows;
  std::size_t count = 0;
  for (io::SignalsRow row; reader.next(row); ++count) {
    add_row(row.step, count, rows);
    survey.farthest.resize(values.units_in(row), 0.0);
    for (std::size_t unit = 0; unit < survey.farthest.size(); ++unit) {
      survey.farthest[unit] = std::max(survey.farthest[unit], values.weight(values.of(row, unit)));
    }
  }
  survey.counts.assign(count, 0);
  for (const auto& [step, row] : rows) {
    survey.counts[row] = 1;
    survey.steps.push_back(step);
  }
  return survey;
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

std::vector<std::uint8_t> rows_that_count(io::SignalsReader reader) {
  CountingRows rows;
  std::size_t count = 0;
  for (io::SignalsRow row; reader.next(row); ++count) add_row(row.step, count, rows);
  std::vector<std::uint8_t> counts(count, 0);
  for (const auto& [step, row] : rows) counts[row] = 1;
  return counts;
}

UnitMap read_unit_map(const std::string& path, MapKind kind, std::span<const std::uint64_t> events,
                      const UnitMapLimits& limits) {
  io::SignalsReader reader(path);
  const UnitValues values(kind, reader, path);
  const Survey survey = survey_rows(io::SignalsReader(path), values);
  UnitMap map;
  map.torn = reader.torn();
  map.unit_count = reader.unit_count();
  map.units = choose_units(survey.farthest, events, limits.rows);
  choose_columns(survey.steps, limits.columns, map);
  map.values.assign(map.units.size() * map.columns, std::numeric_limits<float>::quiet_NaN());
  std::size_t number = 0;
  // A run that is still writing may have added rows since the first reading.
  for (io::SignalsRow row; number < survey.counts.size() && reader.next(row); ++number) {
    if (survey.counts[number] == 0) continue;
    const std::uint64_t offset = distance(map.first_step, row.step);
    const auto column = static_cast<std::size_t>(offset / static_cast<std::uint64_t>(map.column_steps));
    for (std::size_t i = 0; i < map.units.size(); ++i) {
      float& cell = map.values[i * map.columns + column];
      const float value = values.of(row, map.units[i]);
      if (std::isnan(cell) || values.weight(value) > values.weight(cell)) cell = value;
    }
  }
  return map;
}

}  // namespace gnmr::report
