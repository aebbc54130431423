// SPDX-License-Identifier: Apache-2.0
// The columns of `gnmr tune`, the same in the table and in the page.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gnmr/tune_table.h"

namespace gnmr::app {

/// A column; `cell` gives its text for the replay of that index.
struct TuneColumn {
  std::string title;
  bool is_number = true;
  std::string help = {};
  std::function<std::string(std::size_t)> cell;
};

/// The columns that say something of these replays; `outcome` must outlive them.
std::vector<TuneColumn> tune_columns(const TuneOutcome& outcome);

/// Whether the choice took this replay.
bool is_chosen(const TuneOutcome& outcome, std::size_t index);

/// Whether it has nothing but the given values.
bool is_given(const lab::TuneResult& result);

}  // namespace gnmr::app
