// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "gnmr/lab/gap.h"
#include "gnmr/lab/json_values.h"

namespace gnmr::lab {
namespace {

using Cells = std::vector<CellResult>;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

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

/// What the arm closes of the gap between `low` and `high`; none where these are not there with the same seeds.
std::optional<SummaryCell> gap_cell(const Cells& arm, const Cells& low, const Cells& high) {
  std::vector<SeedLosses> seeds;
  bool low_diverged = false;
  for (const CellResult& cell : arm) {
    const CellResult* const low_cell = with_seed(low, cell.seed);
    const CellResult* const high_cell = with_seed(high, cell.seed);
    if (low_cell == nullptr || high_cell == nullptr) continue;
    if (cell.diverged()) return SummaryCell{.text = "diverged", .value = std::nan("")};
    if (high_cell->diverged()) return SummaryCell{.text = "high diverged", .value = std::nan("")};
    low_diverged = low_diverged || low_cell->diverged();
    seeds.push_back({.high = high_cell->loss, .low = low_cell->loss, .arm = cell.loss});
  }
  if (seeds.empty()) return std::nullopt;
  if (low_diverged) return SummaryCell{.text = "low diverged", .value = std::nan("")};
  const GapClosed gap = gap_closed(seeds);
  if (!gap.has_gap()) return SummaryCell{.text = "no gap"};
  SummaryCell cell{.text = fmt::format("{:.0f}%", 100 * gap.closed.mean), .value = gap.closed.mean};
  if (!gap.closed.half_width) {
    cell.text += " (1 seed)";
    return cell;
  }
  cell.low = gap.closed.mean - *gap.closed.half_width;
  cell.high = gap.closed.mean + *gap.closed.half_width;
  cell.text += fmt::format(" [{:.0f}, {:.0f}]", 100 * *cell.low, 100 * *cell.high);
  return cell;
}

/// Fills the row of one arm.
class RowBuilder {
 public:
  RowBuilder(SummaryRow& row, const Cells& cells) : row_(row), cells_(cells) {}

  void add(const char* key, const std::function<double(const CellResult&)>& get, const char* form) {
    row_.cells[key] = over_seeds(numbers_of(cells_, get), form);
  }

  void add_losses(std::size_t planned) {
    add(
        "loss", [](const CellResult& cell) { return cell.loss; }, "{:.4f}");
    const bool has_low =
        std::all_of(cells_.begin(), cells_.end(), [](const CellResult& cell) { return cell.loss_low.has_value(); });
    if (has_low)
      add(
          "loss_low", [](const CellResult& cell) { return *cell.loss_low; }, "{:.4f}");
    const auto count = static_cast<double>(cells_.size());
    std::string text = fmt::format("{}", cells_.size());
    if (cells_.size() < planned) text += fmt::format(" of {}", planned);
    row_.cells["seeds"] = {.text = std::move(text), .value = count};
  }

  void add_control() {
    const auto percent = [](double share) { return 100 * share; };
    add(
        "share_mean", [&](const CellResult& cell) { return percent(cell.share_mean); }, "{:.1f}");
    add(
        "share_peak", [&](const CellResult& cell) { return percent(cell.share_peak); }, "{:.1f}");
    add(
        "high_mean", [&](const CellResult& cell) { return percent(cell.high_mean); }, "{:.1f}");
    add(
        "risks_per_thousand", [](const CellResult& cell) { return cell.risks_per_thousand; }, "{:.1f}");
    add(
        "admissions", [](const CellResult& cell) { return static_cast<double>(cell.admissions); }, count_form());
    add(
        "skipped_updates", [](const CellResult& cell) { return static_cast<double>(cell.skipped_updates); },
        count_form());
  }

  void add_times(const Cells& low) {
    const auto time = [](const CellResult& cell) { return cell.step_ms; };
    const double own = median(numbers_of(cells_, time));
    row_.cells["step_ms"] = {.text = fmt::format("{:.0f}", own), .value = own};
    if (low.empty()) return;
    const double ratio = own / median(numbers_of(low, time));
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
  }

 private:
  /// A count of one run is whole, a mean of several is not.
  const char* count_form() const { return cells_.size() == 1 ? "{:.0f}" : "{:.1f}"; }

  void add_detection(const char* key, const std::function<double(const Detection&)>& get, const char* form) {
    std::vector<double> numbers;
    for (const CellResult& cell : cells_) {
      if (cell.detection && std::isfinite(get(*cell.detection))) numbers.push_back(get(*cell.detection));
    }
    if (numbers.empty()) return;
    const double mean = estimate(numbers).mean;
    row_.cells[key] = {.text = fmt::format(fmt::runtime(form), mean), .value = mean};
  }

  SummaryRow& row_;
  const Cells& cells_;
};

const std::vector<SummaryColumn>& all_columns() {
  static const std::vector<SummaryColumn> columns{
      {"loss", "loss", "Held-out loss at the end, all units high: mean ± sample standard deviation over seeds"},
      {"loss_low", "on low path", "The same with all units on their low path"},
      {"seeds", "seeds", "Cells that have a result"},
      {"gap_closed", "gap closed",
       "(low - arm) / (low - high), paired by seed: mean and 95% interval; `no gap` where low - high is not above its "
       "noise"},
      {"share_mean", "% in recovery", "Mean share of the units in recovery, over steps"},
      {"share_peak", "% peak", "Largest share of the units in recovery"},
      {"high_mean", "% on high path", "Mean share of the units that ran high, for any reason"},
      {"risks_per_thousand", "risks/1000", "Units at risk a thousand unit-steps"},
      {"admissions", "recoveries", "Recoveries that began, a run"},
      {"skipped_updates", "skipped", "Updates that were not finite and not applied, a run"},
      {"recall", "recall", "Injected faults that a recovery met"},
      {"precision", "precision", "Recoveries that began in an injected fault"},
      {"delay", "delay", "Steps from the beginning of a fault to its recovery, where one began"},
      {"step_ms", "step ms", "Median time of a step, with as many cells at a time as there were jobs"},
      {"step_ratio", "x low", "That time against the arm `low`"},
  };
  return columns;
}

Json optional_json(const std::optional<double>& value) { return value ? json_number(*value) : Json(nullptr); }

}  // namespace

Summary summarise(const Suite& suite, const std::vector<std::optional<CellResult>>& results) {
  std::vector<Cells> by_arm(suite.arms().size());
  Summary summary;
  for (std::size_t cell = 0; cell < suite.cells().size(); ++cell) {
    if (!results[cell]) continue;
    by_arm[suite.cells()[cell].arm].push_back(*results[cell]);
    if (!results[cell]->note.empty()) summary.notes.push_back(suite.cells()[cell].name + ": " + results[cell]->note);
  }
  const auto cells_of = [&](std::string_view name) -> const Cells& {
    static const Cells none;
    for (std::size_t arm = 0; arm < by_arm.size(); ++arm) {
      if (suite.arms()[arm].arm.name == name) return by_arm[arm];
    }
    return none;
  };
  for (std::size_t arm = 0; arm < by_arm.size(); ++arm) {
    const Arm& told = suite.arms()[arm].arm;
    SummaryRow row{.arm = told.name, .label = told.label};
    if (by_arm[arm].empty()) {
      row.cells["seeds"] = {.text = fmt::format("0 of {}", suite.seeds().size()), .value = 0};
    } else {
      RowBuilder builder(row, by_arm[arm]);
      builder.add_losses(suite.seeds().size());
      const bool has_no_part = told.name == "high" || told.name == "low" || told.rule == ArmRule::apart;
      const auto gap = has_no_part ? std::nullopt : gap_cell(by_arm[arm], cells_of("low"), cells_of("high"));
      if (gap) row.cells["gap_closed"] = *gap;
      builder.add_control();
      builder.add_detection();
      builder.add_times(cells_of("low"));
    }
    summary.rows.push_back(std::move(row));
  }
  std::set<std::string> used;
  for (const SummaryRow& row : summary.rows) {
    for (const auto& [key, cell] : row.cells) used.insert(key);
  }
  for (const SummaryColumn& column : all_columns()) {
    if (used.contains(column.key)) summary.columns.push_back(column);
  }
  return summary;
}

std::string write_summary(const Summary& summary) {
  Json object{{"version", 1}, {"columns", Json::array()}, {"rows", Json::array()}, {"notes", summary.notes}};
  for (const SummaryColumn& column : summary.columns) {
    object["columns"].push_back({{"key", column.key}, {"title", column.title}, {"help", column.help}});
  }
  for (const SummaryRow& row : summary.rows) {
    Json cells = Json::object();
    for (const auto& [key, cell] : row.cells) {
      cells[key] = {{"text", cell.text}};
      if (cell.value) cells[key]["value"] = optional_json(cell.value);
      if (cell.low) cells[key]["low"] = optional_json(cell.low);
      if (cell.high) cells[key]["high"] = optional_json(cell.high);
    }
    object["rows"].push_back({{"arm", row.arm}, {"cells", std::move(cells)}});
  }
  return object.dump(2) + "\n";
}

}  // namespace gnmr::lab
