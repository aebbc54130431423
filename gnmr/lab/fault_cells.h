// SPDX-License-Identifier: Apache-2.0
// Finished cells of the fault lab, wherever they were run: from suites' folders and from files that keep results.
//
//   {"kind":"cell","version":1,"fault":"saturate","site":"cast","settings":{"steps":"300",...},"cell":{...}}
//
// A file is JSON Lines, small enough to be kept under version control; `settings` are those that differ from the
// defaults, as texts, and `cell` is what cells/ARM-seedN.json holds.
//
// Goals: cells of several machines and sessions make one table, in one order; cells that must not be compared are
// refused. Non-goals: the table (gnmr/lab/fault_tables.h), running anything.
#pragma once

#include <string>
#include <vector>

#include "gnmr/lab/cell.h"
#include "gnmr/lab/setting_texts.h"

namespace gnmr::lab {

/// A result and what it is a result of.
struct FaultCell {
  std::string fault;                       // as fault_subject names it
  std::vector<SettingText> settings = {};  // that differ from the defaults; without those that say where it was written
  CellResult result = {};

  /// The text of a setting; empty where it is at its default.
  std::string setting(std::string_view name) const;
};

/// The finished cells under a folder of `gnmr lab faults`: those of the suites in it, or of the one that it is. An
/// `Error` where there is none.
std::vector<FaultCell> cells_in_folder(const std::string& folder);

/// The cells of a file; an `Error` says file and line.
std::vector<FaultCell> cells_in_file(const std::string& path);

/// Cells as the lines of such a file.
std::string cell_lines(const std::vector<FaultCell>& cells);

/// Cells from several sources in their order (fault, arm, seed), each once: of cells that are there twice the last one
/// counts. An `Error` names the settings where cells of one arm, or arms under one fault, were trained under
/// different conditions.
std::vector<FaultCell> merge_cells(std::vector<FaultCell> cells);

}  // namespace gnmr::lab
