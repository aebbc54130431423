// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/summary_cell.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace gnmr::lab {
namespace {

std::string with_spread(const Estimate& estimated, const char* form) {
  std::string text = fmt::format(fmt::runtime(form), estimated.mean);
  if (estimated.spread) text += " ± " + fmt::format(fmt::runtime(form), *estimated.spread);
  return text;
}

/// How much more an arm loses than others, and what they lose.
struct PairedLosses {
  std::vector<double> changes = {};
  std::vector<double> others = {};
  bool diverged = false;
};

PairedLosses paired(const Cells& arm, const Cells& others) {
  PairedLosses losses;
  for (const CellResult& cell : arm) {
    const CellResult* const other = with_seed(others, cell.seed);
    if (other == nullptr) continue;
    losses.diverged = losses.diverged || cell.diverged() || other->diverged();
    losses.changes.push_back(cell.loss - other->loss);
    losses.others.push_back(other->loss);
  }
  return losses;
}

}  // namespace

SummaryCell over_seeds(const std::vector<double>& numbers, const char* form) {
  const auto lost = std::count_if(numbers.begin(), numbers.end(), [](double number) { return !std::isfinite(number); });
  if (lost > 0) {
    const std::string share = numbers.size() > 1 ? fmt::format(" ({} of {})", lost, numbers.size()) : "";
    return {.text = "diverged" + share, .value = std::nan("")};
  }
  const Estimate estimated = estimate(numbers);
  SummaryCell cell{.text = with_spread(estimated, form), .value = estimated.mean};
  if (estimated.half_width) {
    cell.low = estimated.mean - *estimated.half_width;
    cell.high = estimated.mean + *estimated.half_width;
  }
  return cell;
}

std::vector<double> numbers_of(const Cells& cells, const std::function<double(const CellResult&)>& get) {
  std::vector<double> numbers;
  for (const CellResult& cell : cells) numbers.push_back(get(cell));
  return numbers;
}

const CellResult* with_seed(const Cells& cells, std::int64_t seed) {
  const auto found =
      std::find_if(cells.begin(), cells.end(), [&](const CellResult& cell) { return cell.seed == seed; });
  return found == cells.end() ? nullptr : &*found;
}

std::optional<Cells> as_trained(const Cells& cells) {
  Cells trained = cells;
  for (CellResult& cell : trained) {
    if (!cell.losses.trained) return std::nullopt;
    cell.loss = *cell.losses.trained;
  }
  return trained;
}

std::optional<SummaryCell> share_cell(const Cells& arm, const Reference& low, const Reference& best,
                                      const char* nothing) {
  std::vector<SeedLosses> seeds;
  bool low_diverged = false;
  for (const CellResult& cell : arm) {
    const CellResult* const low_cell = with_seed(low.cells, cell.seed);
    const CellResult* const best_cell = with_seed(best.cells, cell.seed);
    if (low_cell == nullptr || best_cell == nullptr) continue;
    if (cell.diverged()) return SummaryCell{.text = "diverged", .value = std::nan("")};
    if (best_cell->diverged()) {
      return SummaryCell{.text = fmt::format("{} diverged", best.name), .value = std::nan("")};
    }
    low_diverged = low_diverged || low_cell->diverged();
    seeds.push_back({.high = best_cell->loss, .low = low_cell->loss, .arm = cell.loss});
  }
  if (seeds.empty()) return std::nullopt;
  if (low_diverged) return SummaryCell{.text = fmt::format("{} diverged", low.name), .value = std::nan("")};
  const GapClosed gap = gap_closed(seeds);
  if (!gap.has_gap()) return SummaryCell{.text = nothing};
  SummaryCell share{.text = fmt::format("{:.0f}%", 100 * gap.closed.value),
                    .value = gap.closed.value,
                    .low = gap.closed.low,
                    .high = gap.closed.high};
  share.text += share.low ? fmt::format(" [{:.0f}, {:.0f}]", 100 * *share.low, 100 * *share.high) : " (1 seed)";
  return share;
}

std::optional<SummaryCell> change_cell(const Cells& arm, const Cells& others) {
  const PairedLosses losses = paired(arm, others);
  if (losses.changes.empty()) return std::nullopt;
  if (losses.diverged) return SummaryCell{.text = "diverged", .value = std::nan("")};
  const Estimate change = estimate(losses.changes);
  SummaryCell cell{.text = fmt::format("{:+.4f}", change.mean), .value = change.mean};
  if (!change.half_width) {
    cell.text += " (1 seed)";
    return cell;
  }
  cell.low = change.mean - *change.half_width;
  cell.high = change.mean + *change.half_width;
  cell.text += fmt::format(" [{:+.4f}, {:+.4f}]", *cell.low, *cell.high);
  return cell;
}

std::optional<SummaryCell> equivalence_cell(const Cells& arm, const Cells& others) {
  const PairedLosses losses = paired(arm, others);
  if (losses.changes.empty()) return std::nullopt;
  if (losses.diverged) return SummaryCell{.text = "no", .value = 0};
  const Estimate change = estimate(losses.changes);
  if (!change.half_width) return SummaryCell{.text = "?"};
  const double margin = kEquivalenceMargin * estimate(losses.others).mean;
  const bool within = std::abs(change.mean) + *change.half_width <= margin;
  return SummaryCell{.text = within ? "yes" : "no", .value = within ? 1 : 0};
}

}  // namespace gnmr::lab
