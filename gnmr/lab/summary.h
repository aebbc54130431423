// SPDX-License-Identifier: Apache-2.0
// The table of a suite: a row an arm, over its seeds.
//
// Goals: what is not finite is told and never averaged away; a missing cell is told; noise is not a gain
// (gnmr/lab/gap.h). Non-goals: layout.
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

/// The table of results, one a cell of the suite in its order; none where a cell has none.
Summary summarise(const Suite& suite, const std::vector<std::optional<CellResult>>& results);

/// The table as summary.json.
std::string write_summary(const Summary& summary);

}  // namespace gnmr::lab
