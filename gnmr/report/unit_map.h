// SPDX-License-Identifier: Apache-2.0
// The ratios of signals.bin or the errors of errors.bin as a picture: units down, steps across, thinned to what a
// screen can show.
//
// Goals: a file of any length in memory for the picture alone; where steps share a column the ratio farthest from 1, or
// the largest error, stands for them, so that no event is lost; of the GEMMs of a unit the one with the largest error
// is shown; of a step that a resumed run repeats the last record counts.
// Non-goals: colours, names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/io/signals_file.h"

namespace gnmr::report {

/// How large the picture may be.
struct UnitMapLimits {
  std::size_t columns = 1000;
  std::size_t rows = 200;
};

/// What a map shows: the ratios of signals.bin, or of the errors in errors.bin the largest per unit.
enum class MapKind : std::uint8_t { ratios, errors };

/// Numbers, one row per unit.
struct UnitMap {
  std::size_t unit_count = 0;      // in the file
  std::vector<std::size_t> units;  // the unit of each row, ascending
  std::int64_t first_step = 0;     // of the first column
  std::int64_t column_steps = 1;   // steps that share a column
  std::size_t columns = 0;
  std::vector<float> values;  // row by row; NaN: none
  bool torn = false;

  float at(std::size_t row, std::size_t column) const { return values[row * columns + column]; }
};

/// How far a ratio is from 1, in powers of 2; infinite for ratios that are not finite, 0 where there is none.
double distance_from_one(float ratio);

/// What a first reading of a file finds.
struct RowSurvey {
  std::vector<std::int64_t> steps = {};   // of the rows that count, ascending
  std::vector<std::uint8_t> counts = {};  // one per row of the file; 0: a resumed run has superseded it
  std::vector<double> farthest = {};      // how far each unit strays; empty where there is no row
};

/// Reads a file for the first time. An `Error` where it is not of that kind.
RowSurvey survey_rows(const std::string& path, MapKind kind);

/// Calls `visit(row)` for the rows that count, in the order of the file. A run that is still writing may have added
/// rows since the survey: they are left out.
template <class Visit>
void for_rows_that_count(io::SignalsReader& reader, const RowSurvey& survey, const Visit& visit) {
  std::size_t number = 0;
  for (io::SignalsRow row; number < survey.counts.size() && reader.next(row); ++number) {
    if (survey.counts[number] != 0) visit(row);
  }
}

/// Makes a map from rows, for those who read a file for more than that.
class UnitMapPainter {
 public:
  /// Of a file's first reading, with its header from `reader`; the rest is as in `read_unit_map`.
  UnitMapPainter(MapKind kind, const io::SignalsReader& reader, const RowSurvey& survey,
                 std::span<const std::uint64_t> events, const UnitMapLimits& limits);

  void take(const io::SignalsRow& row);

  UnitMap finish() { return std::move(map_); }

 private:
  MapKind kind_;
  std::size_t width_;  // numbers per unit
  UnitMap map_;
};

/// Reads a file. Where it has more units than rows are allowed, those with the most events (one count per unit, or
/// empty) and then with the ratio farthest from 1, or the largest error, are taken. An `Error` where the file is not of
/// that kind.
UnitMap read_unit_map(const std::string& path, MapKind kind, std::span<const std::uint64_t> events,
                      const UnitMapLimits& limits);

}  // namespace gnmr::report
