// SPDX-License-Identifier: Apache-2.0
// One place of a suite's table, made from the cells of an arm and of the arms that it is compared with.
//
// Goals: cells are paired by seed; every comparison has its interval. Non-goals: which places a row has
// (summary_row.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "gnmr/lab/cell.h"
#include "gnmr/lab/gap.h"
#include "gnmr/lab/summary.h"

namespace gnmr::lab {

using Cells = std::vector<CellResult>;

/// A difference of losses that is wholly within this share of the loss is none.
inline constexpr double kEquivalenceMargin = 0.0025;

/// Cells that others are measured by.
struct Reference {
  std::string_view name;
  const Cells& cells;
};

/// A figure over seeds: mean and spread. Where one is not finite the text says so and there is no mean.
SummaryCell over_seeds(const std::vector<double>& numbers, const char* form);

/// A figure of each cell.
std::vector<double> numbers_of(const Cells& cells, const std::function<double(const CellResult&)>& get);

/// The cell of a seed; null where there is none.
const CellResult* with_seed(const Cells& cells, std::int64_t seed);

/// The cells with the loss that each has on the paths of the end of its training; none where a file does not say.
std::optional<Cells> as_trained(const Cells& cells);

/// The share of the way from `low` to `best` that the arm goes; none where these are not there with the same seeds.
/// `nothing` is said where that way is not longer than its noise.
std::optional<SummaryCell> share_cell(const Cells& arm, const Reference& low, const Reference& best,
                                      const char* nothing);

/// How much more the arm loses than the others, seed by seed, in nats; none where no seed is there.
std::optional<SummaryCell> change_cell(const Cells& arm, const Cells& others);

/// Whether the interval of that difference lies within the margin: `yes`, `no`, or `?` where there is no interval.
std::optional<SummaryCell> equivalence_cell(const Cells& arm, const Cells& others);

}  // namespace gnmr::lab
