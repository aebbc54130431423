// SPDX-License-Identifier: Apache-2.0
// The tables of the fault lab: one per fault, and one of all faults.
//
// Goals: the same table from a suite that has just been run and from files of results; Markdown that can be kept
// beside them. Non-goals: layout for a terminal.
#pragma once

#include <string>
#include <vector>

#include "gnmr/lab/fault_cells.h"
#include "gnmr/lab/fault_suite.h"
#include "gnmr/lab/summary.h"

namespace gnmr::lab {

/// What is known of one fault.
struct FaultTable {
  FaultSubject subject;
  std::vector<std::string> conditions = {};  // in which its cells were trained: `steps=300`, `seeds 0 1`
  Summary summary = {};
};

/// A table a fault, of cells that have been merged.
std::vector<FaultTable> fault_tables(const std::vector<FaultCell>& cells);

/// A row per arm, a column per fault: the gap closed, and for a healthy run the change of the loss.
Summary overview(const std::vector<FaultTable>& tables);

/// A row per fault of a sweep over strength and number of layers, a column per arm: a figure of the rows of their
/// tables, as `gap_closed` or `high_change`. No rows where there is no sweep.
Summary sweep(const std::vector<FaultTable>& tables, const std::string& key);

/// All of it as Markdown: the overview, or what a sweep shows, then each fault.
std::string fault_tables_markdown(const std::vector<FaultTable>& tables);

}  // namespace gnmr::lab
