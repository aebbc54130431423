// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/cell.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <vector>

#include "gnmr/io/journal_reader.h"
#include "gnmr/lab/fault_harm.h"
#include "gnmr/lab/fault_list.h"
#include "gnmr/lab/gap.h"
#include "gnmr/lab/run_detection.h"
#include "gnmr/run/harm.h"
#include "gnmr/run/metrics.h"
#include "gnmr/run/run_batches.h"
#include "gnmr/run/run_folder.h"

namespace gnmr::lab {
namespace {

namespace fs = std::filesystem;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Whether the controller's decisions are carried out; elsewhere its journal has what it would have done.
bool switches(const run::RunInfo& info) {
  return info.settings.controller == "gnmr" && info.settings.random_units.empty() && !info.settings.experiment.oracle;
}

void add_training(const std::vector<run::TrainLine>& lines, const run::RunInfo& info, CellResult& cell) {
  const auto units = static_cast<double>(std::max<std::int64_t>(info.units, 1));
  double recovered = 0;
  double high = 0;
  double peak = 0;
  for (const run::TrainLine& line : lines) {
    const auto units_recovered = static_cast<double>(line.recovered.value_or(0));
    recovered += units_recovered;
    high += static_cast<double>(line.high);
    peak = std::max(peak, units_recovered);
    if (!line.applied) ++cell.skipped_updates;
  }
  const auto count = static_cast<double>(lines.size());
  cell.share_mean = recovered / count / units;
  cell.share_peak = peak / units;
  // Without a recipe there is no other path.
  cell.high.mean = info.settings.recipe == "none" ? 1 : high / count / units;
  if (switches(info)) cell.high.shares = run::high_shares(lines, info.units);
  const std::size_t tail = std::max<std::size_t>(lines.size() / 10, 1);
  double sum = 0;
  for (std::size_t i = lines.size() - tail; i < lines.size(); ++i) sum += lines[i].loss;
  cell.losses.train_tail = sum / static_cast<double>(tail);
}

/// Shares of all unit-steps, and of all multiply-adds of units, in high precision: forced units and reruns included.
void add_high_use(const std::vector<run::TrainLine>& lines, const run::RunInfo& info, HighUse& high) {
  if (info.settings.recipe == "none") {
    high.total = high.cost = 1;
    return;
  }
  double units = 0;
  double cost = 0;
  bool has_reruns = true;
  bool has_cost = true;
  for (const run::TrainLine& line : lines) {
    has_reruns = has_reruns && line.rerun_high.has_value();
    has_cost = has_cost && line.high_cost.has_value();
    units += static_cast<double>(line.high) + static_cast<double>(line.rerun_high.value_or(0));
    cost += line.high_cost.value_or(0);
  }
  const auto count = static_cast<double>(lines.size());
  if (has_reruns) high.total = units / count / static_cast<double>(std::max<std::int64_t>(info.units, 1));
  if (has_cost) high.cost = cost / count;
}

/// The share of the steps in which a rule acted; none where no rule was there.
std::optional<double> rule_share(const std::vector<run::TrainLine>& lines) {
  double acted = 0;
  for (const run::TrainLine& line : lines) {
    if (!line.rule_acted) return std::nullopt;
    acted += *line.rule_acted ? 1 : 0;
  }
  return acted / static_cast<double>(lines.size());
}

RunOrigin origin_from(const run::RunInfo& info) {
  return {.commit = info.commit,
          .torch = info.torch,
          .device = info.settings.device,
          .threads = info.threads > 0 ? info.threads : info.settings.threads,
          .lag = static_cast<std::int64_t>(info.settings.options.lag),
          .patrol = info.settings.patrol,
          .data = info.data};
}

void add_journal(const io::Journal& journal, const run::RunInfo& info, CellResult& cell) {
  std::uint64_t risks = 0;
  std::uint64_t sampled = 0;
  for (const io::JournalStepEntry& entry : journal.steps) {
    if (entry.step) {
      risks += entry.step->risks;
      sampled += entry.step->sampled;
    }
    if (!switches(info)) continue;
    cell.admissions += static_cast<std::uint64_t>(
        std::count_if(entry.events.begin(), entry.events.end(),
                      [](const io::JournalEvent& event) { return event.event == io::JournalEventKind::admitted; }));
  }
  cell.risks_per_thousand = sampled == 0 ? 0 : 1000 * static_cast<double>(risks) / static_cast<double>(sampled);
}

/// Steps that ran again: how often, and what that took. `plain_seconds` is what all steps took without.
Reruns reruns_in(const io::Journal& journal, double plain_seconds) {
  Reruns reruns;
  double seconds = 0;
  for (const io::JournalStepEntry& entry : journal.steps) {
    for (const io::JournalTrial& trial : entry.trials) {
      seconds += trial.seconds;
      if (trial.rerun == "replay") ++reruns.replays;
      if (trial.verdict == "numeric") ++reruns.numeric;
      if (trial.verdict == "common") ++reruns.common;
      if (trial.verdict == "unlocated") ++reruns.unlocated;
    }
  }
  if (seconds > 0) reruns.time_share = seconds / (seconds + plain_seconds);
  return reruns;
}

/// The harm of faults, step by step; empty where it was not measured.
std::vector<run::HarmLine> harm_in(const run::RunFolder& folder) {
  std::error_code ignored;
  return fs::exists(folder.harm(), ignored) ? run::read_harm(folder.harm()) : std::vector<run::HarmLine>{};
}

/// The median of steps that took no longer because harm was measured beside them.
double typical_ms(const std::vector<run::TrainLine>& lines, const std::vector<run::HarmLine>& harm) {
  std::set<std::int64_t> longer;
  for (const run::HarmLine& line : harm) longer.insert(line.step);
  std::vector<double> milliseconds;
  std::vector<double> all;
  for (const run::TrainLine& line : lines) {
    all.push_back(1000 * line.seconds.value_or(0));
    if (!longer.contains(run::batch_of(line))) milliseconds.push_back(all.back());
  }
  return median(milliseconds.empty() ? std::move(all) : std::move(milliseconds));
}

}  // namespace

double FaultHarm::recall() const {
  return counted() == 0 ? kNan : static_cast<double>(met + covered) / static_cast<double>(counted());
}

bool CellResult::diverged() const { return !std::isfinite(loss); }

double CellResult::step_ms_with_reruns() const { return reruns ? step_ms / (1 - reruns->time_share) : step_ms; }

std::optional<CellResult> measure_run(const std::string& run_folder) {
  const run::RunFolder folder(run_folder);
  std::error_code ignored;
  if (!folder.holds_run() || !fs::exists(folder.metrics(), ignored)) return std::nullopt;
  const run::RunInfo info = run::load_run_info(folder);
  const run::Metrics metrics = run::read_metrics(folder.metrics());
  const std::int64_t steps = info.settings.steps;
  // Once the last batch has begun, the next evaluation is that of the end, however many held batches came again.
  const run::RunBatches batches(metrics.train);
  if (batches.last() < steps) return std::nullopt;
  if (metrics.evals.empty() || metrics.evals.back().step < metrics.train.back().step) return std::nullopt;
  CellResult cell{.seed = info.settings.seed, .steps = steps, .units = info.units, .origin = origin_from(info)};
  cell.loss = metrics.evals.back().loss_high.value_or(kNan);
  cell.losses = {.low = metrics.evals.back().loss_low, .trained = metrics.evals.back().loss_trained};
  // Without a recipe there is one path.
  if (info.settings.recipe == "none") cell.losses.trained = cell.loss;
  add_training(metrics.train, info, cell);
  add_high_use(metrics.train, info, cell.high);
  cell.rule_share = rule_share(metrics.train);
  const std::vector<run::HarmLine> harm = harm_in(folder);
  cell.step_ms = typical_ms(metrics.train, harm);
  if (!fs::exists(folder.journal(), ignored)) return cell;
  const io::Journal journal = io::read_journal(folder.journal());
  add_journal(journal, info, cell);
  if (switches(info)) cell.reruns = reruns_in(journal, cell.step_ms / 1000 * static_cast<double>(metrics.train.size()));
  if (info.settings.experiment.faults.empty()) return cell;
  if (switches(info)) cell.detection = detection_in(journal, batches, folder.faults());
  if (info.settings.experiment.harm && fs::exists(folder.harm(), ignored) && fs::exists(folder.fault_list(), ignored)) {
    cell.harm = fault_harm(read_fault_list(folder.fault_list()), harm, batches, switches(info) ? &journal : nullptr);
  }
  return cell;
}

}  // namespace gnmr::lab
