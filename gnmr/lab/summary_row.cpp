// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/summary_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "gnmr/lab/gap.h"
#include "gnmr/lab/proportion.h"
#include "gnmr/lab/summary_cell.h"

namespace gnmr::lab {
namespace {

/// Fills the row of one arm that has cells.
class RowBuilder {
 public:
  RowBuilder(const Comparison& comparison, SummaryRow& row, const Cells& cells)
      : comparison_(comparison), row_(row), cells_(cells), brief_(comparison.kind != SummaryKind::stress) {}

  void add_losses() {
    add(
        "loss", [](const CellResult& cell) { return cell.loss; }, "{:.4f}");
    add_if_known(
        "loss_low", [](const CellResult& cell) { return cell.losses.low; }, 1, "{:.4f}");
    add_if_known(
        "loss_trained", [](const CellResult& cell) { return cell.losses.trained; }, 1, "{:.4f}");
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
    const bool healthy = comparison_.kind == SummaryKind::healthy;
    if (row_.arm != high.name && rule != ArmRule::apart) add_differences(high.cells);
    if (row_.arm == low.name) return;
    if (healthy) put("loss_change", change_cell(cells_, low.cells));
    if (healthy) put("equivalent", equivalence_cell(cells_, low.cells));
    if (row_.arm == high.name || rule == ArmRule::apart) return;
    put("gap_closed", share_cell(cells_, low, high, "no gap"));
    const std::optional<Cells> own_trained = as_trained(cells_);
    const std::optional<Cells> low_trained = as_trained(low.cells);
    const std::optional<Cells> high_trained = as_trained(high.cells);
    if (own_trained && low_trained && high_trained) {
      put("gap_trained", share_cell(*own_trained, {low.name, *low_trained}, {high.name, *high_trained}, "no gap"));
    }
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
    add_if_known(
        "high_total", [](const CellResult& cell) { return cell.high.total; }, 100, "{:.1f}");
    add_if_known(
        "high_cost", [](const CellResult& cell) { return cell.high.cost; }, 100, "{:.1f}");
    add_if_known(
        "rule_share", [](const CellResult& cell) { return cell.rule_share; }, 100, "{:.1f}");
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

  /// Counts of all seeds together; delays are means over the seeds in which there were some.
  void add_detection() {
    std::uint64_t faults = 0;
    std::uint64_t met = 0;
    std::uint64_t outside = 0;
    std::uint64_t admissions = 0;
    for (const CellResult& cell : cells_) {
      if (!cell.detection) continue;
      const Detection& detection = *cell.detection;
      faults += detection.faults;
      if (detection.faults > 0) met += rounded(detection.recall * as_number(detection.faults));
      admissions += cell.admissions;
      if (cell.admissions > 0) outside += detection.outside.value_or(outside_of(cell));
    }
    if (faults > 0) put_proportion("recall", met, faults);
    if (admissions > 0) put_proportion("precision", admissions - std::min(outside, admissions), admissions);
    add_false_alarms();
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
      put_proportion("harmful_recall", all.met + all.covered, all.counted());
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
  void add_differences(const Cells& high) {
    if (row_.arm == comparison_.high()) return;
    put("high_change", change_cell(cells_, high));
    if (comparison_.kind != SummaryKind::healthy) put("equivalent", equivalence_cell(cells_, high));
    const std::optional<Cells> own_trained = as_trained(cells_);
    if (own_trained) put("trained_change", change_cell(*own_trained, high));
  }

  /// Admissions that met no fault, in a million unit-steps; where nothing was injected, all of them.
  void add_false_alarms() {
    double alarms = 0;
    double unit_steps = 0;
    for (const CellResult& cell : cells_) {
      if (!cell.reruns) return;  // nothing was switched
      alarms += as_number(cell.detection ? cell.detection->outside.value_or(outside_of(cell)) : cell.admissions);
      unit_steps += static_cast<double>(cell.units) * static_cast<double>(cell.steps);
    }
    if (unit_steps == 0 || comparison_.kind == SummaryKind::stress) return;
    const double rate = 1e6 * alarms / unit_steps;
    row_.cells["false_alarms"] = {.text = fmt::format("{:.0f}", rate), .value = rate};
  }

  static std::uint64_t rounded(double number) {
    return static_cast<std::uint64_t>(std::llround(std::max(number, 0.0)));
  }

  /// What earlier files give as a share.
  static std::uint64_t outside_of(const CellResult& cell) {
    if (!cell.detection || !std::isfinite(cell.detection->precision)) return 0;
    return rounded((1 - cell.detection->precision) * as_number(cell.admissions));
  }

  void put_proportion(const char* key, std::uint64_t hits, std::uint64_t cases) {
    const Proportion found = proportion(hits, cases);
    row_.cells[key] = {
        .text = proportion_text(found), .value = 100 * found.value(), .low = 100 * found.low, .high = 100 * found.high};
  }

  /// The figure of all cells; nothing where a cell does not have it.
  void add_if_known(const char* key, const std::function<std::optional<double>(const CellResult&)>& get, double scale,
                    const char* form) {
    const auto knows = [&](const CellResult& cell) { return get(cell).has_value(); };
    if (!std::all_of(cells_.begin(), cells_.end(), knows)) return;
    add(
        key, [&](const CellResult& cell) { return scale * *get(cell); }, form);
  }

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
