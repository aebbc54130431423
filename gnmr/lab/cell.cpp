// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/cell.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <vector>

#include "gnmr/io/journal_reader.h"
#include "gnmr/io/text_error.h"
#include "gnmr/lab/json_values.h"
#include "gnmr/lab/run_detection.h"
#include "gnmr/run/metrics.h"
#include "gnmr/run/run_folder.h"

namespace gnmr::lab {
namespace {

constexpr std::int64_t kCellVersion = 1;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double median(std::vector<double> values) {
  if (values.empty()) return kNan;
  const std::size_t middle = values.size() / 2;
  std::sort(values.begin(), values.end());
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// Whether the controller's decisions are carried out; elsewhere its journal tells what it would have done.
bool switches(const run::RunInfo& info) {
  return info.settings.controller == "gnmr" && info.settings.random_units.empty();
}

void add_training(const std::vector<run::TrainLine>& lines, const run::RunInfo& info, CellResult& cell) {
  std::vector<double> milliseconds;
  const auto units = static_cast<double>(std::max<std::int64_t>(info.units, 1));
  double recovered = 0;
  double high = 0;
  double peak = 0;
  for (const run::TrainLine& line : lines) {
    milliseconds.push_back(1000 * line.seconds);
    recovered += static_cast<double>(line.recovered);
    high += static_cast<double>(line.high);
    peak = std::max(peak, static_cast<double>(line.recovered));
    if (!line.applied) ++cell.skipped_updates;
  }
  const auto count = static_cast<double>(lines.size());
  cell.step_ms = median(std::move(milliseconds));
  cell.share_mean = recovered / count / units;
  cell.share_peak = peak / units;
  // Without a recipe there is no other path.
  cell.high_mean = info.settings.recipe == "none" ? 1 : high / count / units;
  const std::size_t tail = std::max<std::size_t>(lines.size() / 10, 1);
  double sum = 0;
  for (std::size_t i = lines.size() - tail; i < lines.size(); ++i) sum += lines[i].loss;
  cell.train_loss_tail = sum / static_cast<double>(tail);
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

Json detection_json(const Detection& detection) {
  return {{"faults", detection.faults},
          {"recall", json_number(detection.recall)},
          {"precision", json_number(detection.precision)},
          {"delay", json_number(detection.delay)}};
}

CellResult cell_of(const Json& object) {
  if (const std::int64_t version = run::whole_of(run::field(object, "version"), "version"); version != kCellVersion) {
    throw Error("version " + std::to_string(version) + ", this program reads " + std::to_string(kCellVersion));
  }
  const auto number = [&](const char* key) { return run::number_of(run::field(object, key), key); };
  const auto whole = [&](const char* key) { return run::whole_of(run::field(object, key), key); };
  CellResult cell{.arm = run::text_of(run::field(object, "arm"), "arm"),
                  .seed = whole("seed"),
                  .run = run::text_of(run::field(object, "run"), "run"),
                  .steps = whole("steps"),
                  .loss = number("loss"),
                  .train_loss_tail = number("train_loss_tail"),
                  .share_mean = number("share_mean"),
                  .share_peak = number("share_peak"),
                  .high_mean = number("high_mean"),
                  .risks_per_thousand = number("risks_per_thousand"),
                  .admissions = static_cast<std::uint64_t>(whole("admissions")),
                  .skipped_updates = whole("skipped_updates"),
                  .step_ms = number("step_ms"),
                  .units = whole("units")};
  if (object.contains("loss_low")) cell.loss_low = number("loss_low");
  if (object.contains("note")) cell.note = run::text_of(object.at("note"), "note");
  if (object.contains("faults")) {
    cell.detection = {.faults = static_cast<std::uint64_t>(whole("faults")),
                      .recall = number("recall"),
                      .precision = number("precision"),
                      .delay = number("delay")};
  }
  return cell;
}

}  // namespace

bool CellResult::diverged() const { return !std::isfinite(loss); }

std::optional<CellResult> measure_run(const std::string& run_folder) {
  const run::RunFolder folder(run_folder);
  std::error_code ignored;
  if (!folder.holds_run() || !std::filesystem::exists(folder.metrics(), ignored)) return std::nullopt;
  const run::RunInfo info = run::load_run_info(folder);
  const run::Metrics metrics = run::read_metrics(folder.metrics());
  const std::int64_t steps = info.settings.steps;
  if (metrics.train.empty() || metrics.train.back().step < steps) return std::nullopt;
  if (metrics.evals.empty() || metrics.evals.back().step < steps) return std::nullopt;
  CellResult cell{.seed = info.settings.seed, .steps = steps, .units = info.units};
  cell.loss = metrics.evals.back().loss_high.value_or(kNan);
  cell.loss_low = metrics.evals.back().loss_low;
  add_training(metrics.train, info, cell);
  if (!std::filesystem::exists(folder.journal(), ignored)) return cell;
  const io::Journal journal = io::read_journal(folder.journal());
  add_journal(journal, info, cell);
  if (switches(info) && !info.settings.faults.empty()) cell.detection = detection_in(journal, folder.faults());
  return cell;
}

std::string write_cell(const CellResult& cell) {
  Json object{
      {"version", kCellVersion}, {"arm", cell.arm},     {"seed", cell.seed},   {"run", cell.run},
      {"finished", true},        {"steps", cell.steps}, {"units", cell.units}, {"loss", json_number(cell.loss)}};
  if (cell.loss_low) object["loss_low"] = json_number(*cell.loss_low);
  object["train_loss_tail"] = json_number(cell.train_loss_tail);
  object["share_mean"] = json_number(cell.share_mean);
  object["share_peak"] = json_number(cell.share_peak);
  object["high_mean"] = json_number(cell.high_mean);
  object["risks_per_thousand"] = json_number(cell.risks_per_thousand);
  object["admissions"] = cell.admissions;
  object["skipped_updates"] = cell.skipped_updates;
  object["step_ms"] = json_number(cell.step_ms);
  if (cell.detection) object.update(detection_json(*cell.detection));
  if (!cell.note.empty()) object["note"] = cell.note;
  return object.dump(2) + "\n";
}

CellResult parse_cell(std::string_view text, const std::string& file) {
  try {
    return cell_of(run::parse_object(text));
  } catch (const Error& error) {
    throw io::error_at(file, error.what());
  }
}

}  // namespace gnmr::lab
