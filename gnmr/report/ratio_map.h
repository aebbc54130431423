// SPDX-License-Identifier: Apache-2.0
// The ratios of a signals file as a picture: units down, steps across, thinned to what a screen can show.
//
// Goals: a file of any length in memory for the picture alone; where steps share a column the ratio farthest from 1
// stands for them, so that no event is lost; of a step that a resumed run repeats the last record counts.
// Non-goals: colours, names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gnmr::report {

/// How large the picture may be.
struct RatioMapLimits {
  std::size_t columns = 1000;
  std::size_t rows = 200;
};

/// Ratios, one row per unit.
struct RatioMap {
  std::size_t unit_count = 0;      // in the file
  std::vector<std::size_t> units;  // the unit of each row, ascending
  std::int64_t first_step = 0;     // of the first column
  std::int64_t column_steps = 1;   // steps that share a column
  std::size_t columns = 0;
  std::vector<float> ratios;  // row by row; NaN: none
  bool torn = false;

  float at(std::size_t row, std::size_t column) const { return ratios[row * columns + column]; }
};

/// How far a ratio is from 1, in powers of 2; infinite for ratios that are not finite, 0 where there is none.
double distance_from_one(float ratio);

/// Reads a file. Where it has more units than rows are allowed, those with the most events (one count per unit, or
/// empty) and then with the ratio farthest from 1 are taken.
RatioMap read_ratio_map(const std::string& path, std::span<const std::uint64_t> events, const RatioMapLimits& limits);

}  // namespace gnmr::report
