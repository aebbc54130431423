// SPDX-License-Identifier: Apache-2.0
// The table of a suite: a row an arm, over its seeds.
//
// Goals: what is not finite is reported and never averaged away, as is a missing cell; noise is not a gain
// (gnmr/lab/gap.h). Non-goals: layout.
//
// The rows are built in summary_row.h.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/lab/cell.h"
#include "gnmr/lab/suite.h"

namespace gnmr::lab {

/// What a column shows.
struct SummaryColumn {
  std::string key;
  std::string title;
  std::string help;
};

/// One place in the table; `value`, `low` and `high` (of an interval) are for programs.
struct SummaryCell {
  std::string text = {};
  std::optional<double> value = {};
  std::optional<double> low = {};
  std::optional<double> high = {};
};

/// One arm.
struct SummaryRow {
  std::string arm;
  std::string label;
  std::map<std::string, SummaryCell> cells = {};  // by the key of the column; what an arm does not have is not there
};

/// The table and what must be known to read it.
struct Summary {
  std::vector<SummaryColumn> columns;
  std::vector<SummaryRow> rows;
  std::vector<std::string> notes = {};
};

/// Which figures a table has.
enum class SummaryKind {
  stress,   // regimes: what low precision costs, and what is won back
  faults,   // injected faults: also whether they were met, and what an oracle would have won
  healthy,  // nothing is wrong: what being watched costs
};

/// What is compared, wherever the cells come from.
struct Comparison {
  SummaryKind kind = SummaryKind::stress;
  std::vector<Arm> arms = {};                       // the rows; name, label and rule count
  std::vector<std::vector<CellResult>> cells = {};  // of each arm, by seed
  std::size_t seeds = 0;                            // that each arm should have
  std::vector<std::string> notes = {};

  /// The arms that others are measured by.
  std::string_view low() const { return kind == SummaryKind::stress ? "low" : "none"; }
  std::string_view high() const { return "high"; }
  std::string_view oracle() const { return "oracle"; }

  /// The cells of the arm of a name; none where there is no such arm.
  const std::vector<CellResult>& cells_of(std::string_view name) const;
};

/// The table of a comparison.
Summary summarise(const Comparison& comparison);

/// The comparison that a suite is, of results, one per cell of the suite in its order; none where a cell has none.
Comparison compare(const Suite& suite, const std::vector<std::optional<CellResult>>& results);

/// The table of results, one per cell of the suite in its order; none where a cell has none.
Summary summarise(const Suite& suite, const std::vector<std::optional<CellResult>>& results);

/// The table as summary.json.
std::string write_summary(const Summary& summary);

/// Reads such a file, of which all but the keys of columns and the arms of rows may be missing; labels are names then.
/// The `Error` begins with its path.
Summary read_summary(const std::string& path);

}  // namespace gnmr::lab
