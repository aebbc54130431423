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

/// Per row of a file whether it counts: 0 where a resumed run has superseded it.
std::vector<std::uint8_t> rows_that_count(io::SignalsReader reader);

/// Reads a file. Where it has more units than rows are allowed, those with the most events (one count per unit, or
/// empty) and then with the ratio farthest from 1, or the largest error, are taken. An `Error` where the file is not of
/// that kind.
UnitMap read_unit_map(const std::string& path, MapKind kind, std::span<const std::uint64_t> events,
                      const UnitMapLimits& limits);

}  // namespace gnmr::report
