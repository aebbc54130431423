// SPDX-License-Identifier: Apache-2.0
// Chronic units: those whose errors were far above those of their peers for most of a run, by its errors.bin.
//
// Goals: the rule of standing recovery (gnmr/core/error_levels.h), also where the run had none; a file of any length in
// the memory of one row. Non-goals: which of them there is room for (`gnmr plan`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gnmr/io/journal.h"
#include "gnmr/io/signals_file.h"
#include "gnmr/report/unit_map.h"

namespace gnmr::report {

/// One chronic unit.
struct ChronicUnit {
  std::size_t unit = 0;  // its index
  std::string name;
  std::string place;  // the GEMM in which it is farthest above the median
  double error = 0;   // usual one there, in the review in which that was largest
  double above = 0;   // this over the median of the units in the same GEMM
  double share = 0;   // of the reviews that knew its errors, those in which it was coarse; above 0.5
};

/// What a file of errors says of them.
struct ChronicUnits {
  std::vector<ChronicUnit> units = {};  // the farthest above the median first
  std::uint64_t reviews = 0;            // that knew the errors of some unit; 0: too little was measured
};

/// The chronic units of a run with this header. Errors of a row are those of a decision, and every twentieth row is a
/// review; where the options turn standing recovery off, the thresholds are the defaults. An `Error` where the file has
/// no sites or is of another number of units.
ChronicUnits find_chronic_units(const std::string& path, const io::JournalHeader& header);

/// The same of a file that was surveyed; `also` gets the rows too.
ChronicUnits find_chronic_units(const std::string& path, const io::JournalHeader& header, const RowSurvey& survey,
                                const std::function<void(const io::SignalsRow&)>& also);

/// Such as `layers.0.down (forward 4.1 x median), layers.1.down (...)`; `none`, or why that is not known.
std::string chronic_text(const ChronicUnits& chronic);

}  // namespace gnmr::report
