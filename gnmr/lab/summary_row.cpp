// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/summary_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "gnmr/lab/gap.h"

namespace gnmr::lab {
namespace {

using Cells = std::vector<CellResult>;

std::string with_spread(const Estimate& estimated, const char* form) {
  std::string text = fmt::format(fmt::runtime(form), estimated.mean);
  if (estimated.spread) text += " ± " + fmt::format(fmt::runtime(form), *estimated.spread);
  return text;
}

/// A figure over seeds: mean and spread. Where one is not finite the text says so and there is no mean.
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

/// Mean and interval in one text; `scale` is 100 for percent.
SummaryCell with_interval(const Estimate& estimated, const char* form, const char* ends_form, double scale) {
  SummaryCell cell{.text = fmt::format(fmt::runtime(form), scale * estimated.mean), .value = estimated.mean};
  if (!estimated.half_width) {
    cell.text += " (1 seed)";
    return cell;
  }
  cell.low = estimated.mean - *estimated.half_width;
  cell.high = estimated.mean + *estimated.half_width;
  cell.text += fmt::format(fmt::runtime(ends_form), scale * *cell.low, scale * *cell.high);
  return cell;
}

/// Cells that others are measured by.
struct Reference {
  std::string_view name;
  const Cells& cells;
};

/// The share of the way from `low` to `best` that the arm goes, seed by seed; none where these are not there with the
/// same seeds. `nothing` is said where that way is not longer than its noise.
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
  return with_interval(gap.closed, "{:.0f}%", " [{:.0f}, {:.0f}]", 100);
}

/// How much more the arm loses than `low`, seed by seed.
std::optional<SummaryCell> change_cell(const Cells& arm, const Cells& low) {
  std::vector<double> changes;
  for (const CellResult& cell : arm) {
    const CellResult* const low_cell = with_seed(low, cell.seed);
    if (low_cell == nullptr) continue;
    if (cell.diverged() || low_cell->diverged()) return SummaryCell{.text = "diverged", .value = std::nan("")};
    changes.push_back(cell.loss - low_cell->loss);
  }
  if (changes.empty()) return std::nullopt;
  return with_interval(estimate(changes), "{:+.4f}", " [{:+.4f}, {:+.4f}]", 1);
}

/// Fills the row of one arm that has cells.
class RowBuilder {
 public:
  RowBuilder(const Comparison& comparison, SummaryRow& row, const Cells& cells)
      : comparison_(comparison), row_(row), cells_(cells), brief_(comparison.kind != SummaryKind::stress) {}

  void add_losses() {
    add(
        "loss", [](const CellResult& cell) { return cell.loss; }, "{:.4f}");
    const bool has_low =
        std::all_of(cells_.begin(), cells_.end(), [](const CellResult& cell) { return cell.loss_low.has_value(); });
    if (has_low)
      add(
          "loss_low", [](const CellResult& cell) { return *cell.loss_low; }, "{:.4f}");
    const auto count = static_cast<double>(cells_.size());
    std::string text = fmt::format("{}", cells_.size());
    if (cells_.size() < comparison_.seeds) text += fmt::format(" of {}", comparison_.seeds);
    row_.cells["seeds"] = {.text = std::move(text), .value = count};
  }

  /// What is won of the way to high precision, and of what the oracle wins.
  void add_gains(ArmRule rule) {
    const Reference low{comparison_.low(), comparison_.cells_of(comparison_.low())};
    const Reference high{comparison_.high(), comparison_.cells_of(comparison_.high())};
    const Reference oracle{comparison_.oracle(), comparison_.cells_of(comparison_.oracle())};
    if (row_.arm == low.name) return;
    if (comparison_.kind == SummaryKind::healthy) put("loss_change", change_cell(cells_, low.cells));
    if (row_.arm == high.name || rule == ArmRule::apart) return;
    put("gap_closed", share_cell(cells_, low, high, "no gap"));
    if (comparison_.kind != SummaryKind::faults || row_.arm == oracle.name) return;
    put("of_oracle", share_cell(cells_, low, oracle, "no gain"));
    add_use(oracle.cells);
  }

  void add_control() {
    const auto percent = [](double share) { return 100 * share; };
    add(
        "share_mean", [&](const CellResult& cell) { return percent(cell.share_mean); }, "{:.1f}");
    add(
        "share_peak", [&](const CellResult& cell) { return percent(cell.share_peak); }, "{:.1f}");
    add(
        "high_mean", [&](const CellResult& cell) { return percent(cell.high.mean); }, "{:.1f}");
    add_high_shares();
    add(
        "risks_per_thousand", [](const CellResult& cell) { return cell.risks_per_thousand; }, "{:.1f}");
    add(
        "admissions", [](const CellResult& cell) { return static_cast<double>(cell.admissions); }, count_form());
    add(
        "skipped_updates", [](const CellResult& cell) { return static_cast<double>(cell.skipped_updates); },
        count_form());
  }

  void add_times() {
    const double own = median(numbers_of(cells_, [](const CellResult& cell) { return cell.step_ms; }));
    row_.cells["step_ms"] = {.text = fmt::format("{:.0f}", own), .value = own};
    // Seed by seed: cells of one seed are more often of one machine than all cells are.
    std::vector<double> ratios;
    for (const CellResult& cell : cells_) {
      const CellResult* const low = with_seed(comparison_.cells_of(comparison_.low()), cell.seed);
      if (low != nullptr) ratios.push_back(cell.step_ms_with_reruns() / low->step_ms_with_reruns());
    }
    if (ratios.empty()) return;
    const double ratio = median(std::move(ratios));
    row_.cells["step_ratio"] = {.text = fmt::format("{:.2f}", ratio), .value = ratio};
  }

  /// Means over the seeds in which there was something to share.
  void add_detection() {
    add_detection(
        "recall", [](const Detection& found) { return 100 * found.recall; }, "{:.0f}%");
    add_detection(
        "precision", [](const Detection& found) { return 100 * found.precision; }, "{:.0f}%");
    add_detection(
        "delay", [](const Detection& found) { return found.delay; }, "{:.1f}");
    add_detection(
        "outside", [](const Detection& found) { return found.outside ? as_number(*found.outside) : NAN; },
        count_form());
    std::optional<double> largest;
    for (const CellResult& cell : cells_) {
      const double delay = cell.detection ? cell.detection->largest_delay.value_or(NAN) : NAN;
      if (std::isfinite(delay)) largest = std::max(largest.value_or(delay), delay);
    }
    if (largest) row_.cells["largest_delay"] = {.text = fmt::format("{:.0f}", *largest), .value = largest};
  }

  /// Of all seeds together: a run has few faults.
  void add_harm() {
    FaultHarm all;
    bool measured = false;
    for (const CellResult& cell : cells_) {
      if (!cell.harm) continue;
      measured = true;
      all.harmful += cell.harm->harmful;
      all.met += cell.harm->met;
      all.covered += cell.harm->covered;
      counted_trials_ += cell.reruns ? cell.reruns->trials() : 0;
    }
    if (!measured) return;
    row_.cells["harmful"] = {.text = fmt::format("{} + {}", all.harmful, all.covered), .value = as_number(all.harmful)};
    row_.cells["covered"] = {.text = fmt::format("{}", all.covered), .value = as_number(all.covered)};
    if (all.counted() == 0) return;
    if (may_meet_faults()) {
      row_.cells["harmful_recall"] = {.text = fmt::format("{:.0f}%", 100 * all.recall()), .value = 100 * all.recall()};
    }
    if (counted_trials_ == 0) return;
    const double a_fault = as_number(counted_trials_) / as_number(all.counted());
    row_.cells["trials_per_harmful"] = {.text = fmt::format("{:.1f}", a_fault), .value = a_fault};
  }

  void add_reruns() {
    add_reruns(
        "trials", [](const Reruns& reruns) { return as_number(reruns.trials()); }, count_form());
    const auto mean = [this](const char* key, const std::function<double(const Reruns&)>& get) {
      add_reruns(key, get, count_form());
      return row_.cells.contains(key) ? row_.cells.at(key).text : "";
    };
    const std::string numeric = mean("numeric", [](const Reruns& reruns) { return as_number(reruns.numeric); });
    const std::string common = mean("common", [](const Reruns& reruns) { return as_number(reruns.common); });
    const std::string unlocated = mean("unlocated", [](const Reruns& reruns) { return as_number(reruns.unlocated); });
    const auto trials = row_.cells.find("trials");
    if (trials != row_.cells.end() && trials->second.value != 0) {
      row_.cells["verdicts"] = {.text = fmt::format("{}/{}/{}", numeric, common, unlocated)};
    }
    add_reruns(
        "replays", [](const Reruns& reruns) { return as_number(reruns.replays); }, count_form());
    add_reruns(
        "rerun_time", [](const Reruns& reruns) { return 100 * reruns.time_share; }, "{:.1f}");
  }

 private:
  /// The means of the cells; none where one of them is of an earlier version.
  void add_high_shares() {
    run::HighShares sums;
    for (const CellResult& cell : cells_) {
      if (!cell.high.shares) return;
      sums.acute += cell.high.shares->acute;
      sums.standing += cell.high.shares->standing;
      sums.reruns += cell.high.shares->reruns;
    }
    const double scale = 100 / static_cast<double>(cells_.size());
    row_.cells["high_parts"] = {
        .text = fmt::format("{:.1f}/{:.1f}/{:.1f}", scale * sums.acute, scale * sums.standing, scale * sums.reruns),
        .value = scale * sums.total()};
  }

  static double as_number(std::uint64_t count) { return static_cast<double>(count); }

  /// A count of one run is whole, a mean of several is not.
  const char* count_form() const { return cells_.size() == 1 ? "{:.0f}" : "{:.1f}"; }

  void put(const char* key, std::optional<SummaryCell> cell) {
    if (cell) row_.cells[key] = std::move(*cell);
  }

  void add(const char* key, const std::function<double(const CellResult&)>& get, const char* form) {
    SummaryCell& cell = row_.cells[key] = over_seeds(numbers_of(cells_, get), form);
    // Where many columns must stand beside each other only the loss has its spread.
    const double mean = cell.value.value_or(NAN);
    if (brief_ && !std::string_view(key).starts_with("loss") && std::isfinite(mean)) {
      cell.text = fmt::format(fmt::runtime(form), mean);
    }
  }

  void add_mean(const char* key, const std::vector<double>& numbers, const char* form) {
    if (numbers.empty()) return;
    const double mean = estimate(numbers).mean;
    row_.cells[key] = {.text = fmt::format(fmt::runtime(form), mean), .value = mean};
  }

  void add_detection(const char* key, const std::function<double(const Detection&)>& get, const char* form) {
    std::vector<double> numbers;
    for (const CellResult& cell : cells_) {
      if (cell.detection && std::isfinite(get(*cell.detection))) numbers.push_back(get(*cell.detection));
    }
    add_mean(key, numbers, form);
  }

  void add_reruns(const char* key, const std::function<double(const Reruns&)>& get, const char* form) {
    std::vector<double> numbers;
    for (const CellResult& cell : cells_) {
      if (cell.reruns) numbers.push_back(get(*cell.reruns));
    }
    add_mean(key, numbers, form);
  }

  /// The use of recovery against the oracle's, over the seeds that both have.
  void add_use(const Cells& oracle) {
    double own = 0;
    double best = 0;
    for (const CellResult& cell : cells_) {
      const CellResult* const other = with_seed(oracle, cell.seed);
      if (other == nullptr) continue;
      own += cell.share_mean;
      best += other->share_mean;
    }
    if (best > 0) row_.cells["oracle_use"] = {.text = fmt::format("{:.2f}", own / best), .value = own / best};
  }

  /// Whether the arm sends units to high precision at all.
  bool may_meet_faults() const {
    return std::any_of(cells_.begin(), cells_.end(),
                       [](const CellResult& cell) { return cell.detection || cell.high.mean > 0; });
  }

  const Comparison& comparison_;
  SummaryRow& row_;
  const Cells& cells_;
  bool brief_;
  std::uint64_t counted_trials_ = 0;
};

}  // namespace

SummaryRow summary_row(const Comparison& comparison, std::size_t arm) {
  const Arm& shown = comparison.arms[arm];
  const Cells& cells = comparison.cells[arm];
  SummaryRow row{.arm = shown.name, .label = shown.label};
  if (cells.empty()) {
    row.cells["seeds"] = {.text = fmt::format("0 of {}", comparison.seeds), .value = 0};
    return row;
  }
  RowBuilder builder(comparison, row, cells);
  builder.add_losses();
  builder.add_gains(shown.rule);
  builder.add_control();
  builder.add_detection();
  builder.add_harm();
  builder.add_reruns();
  builder.add_times();
  return row;
}

}  // namespace gnmr::lab
