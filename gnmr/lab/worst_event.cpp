// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/worst_event.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <vector>

#include "gnmr/io/journal_reader.h"
#include "gnmr/io/truth.h"
#include "gnmr/run/run_batches.h"
#include "gnmr/run/run_folder.h"

namespace gnmr::lab {
namespace {

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

double severity_of(const io::JournalEvent& event) {
  const double severity = event.severity.value_or(0);
  return std::isnan(severity) ? std::numeric_limits<double>::infinity() : severity;
}

/// How far the trial that found the unit moved the gradient; below 0: there was none.
double distance_of(const WorstEvent& event) {
  if (!event.trial || !event.trial->distance) return -1;
  return std::isnan(*event.trial->distance) ? std::numeric_limits<double>::infinity() : *event.trial->distance;
}

bool is_worse(const WorstEvent& a, const WorstEvent& b) {
  if (distance_of(a) != distance_of(b)) return distance_of(a) > distance_of(b);
  return severity_of(a.event) > severity_of(b.event);
}

/// The trial of the step in which the unit was an outlier.
std::optional<io::JournalTrial> trial_of(const io::JournalStepEntry& entry, const std::string& unit) {
  for (const io::JournalTrial& trial : entry.trials) {
    if (std::find(trial.units.begin(), trial.units.end(), unit) != trial.units.end()) return trial;
  }
  return std::nullopt;
}

/// The batch of a step.
std::int64_t batch_of(const run::RunFolder& folder, std::int64_t step) {
  return is_there(folder.metrics()) ? run::RunBatches(run::read_metrics(folder.metrics()).train).of(step) : step;
}

/// The units that had a fault in the batch of the event, or in the one before it: an admission may come so late.
std::vector<std::string> faulty_units(const std::string& truth_path, std::int64_t batch) {
  io::TruthReader truth = io::open_truth(truth_path);
  std::vector<bool> before(truth.units().size());
  std::vector<std::string> names;
  for (io::TruthRow row; truth.next(row) && row.step <= batch;) {
    for (std::size_t unit = 0; unit < before.size(); ++unit) {
      const bool now = row.faulty[unit] != 0;
      if (row.step == batch && (now || before[unit])) names.push_back(truth.units()[unit]);
      before[unit] = now;
    }
  }
  return names;
}

std::string fault_text(const std::vector<std::string>& faulty, const std::string& unit) {
  if (faulty.empty()) return "no fault was injected in that step";
  if (std::find(faulty.begin(), faulty.end(), unit) != faulty.end()) return "a fault was injected there";
  return fmt::format("a fault was injected in {}", fmt::join(faulty, ", "));
}

std::string trial_text(const io::JournalTrial& trial, const std::string& unit) {
  const auto place =
      static_cast<std::size_t>(std::find(trial.units.begin(), trial.units.end(), unit) - trial.units.begin());
  std::string text = "its low path";
  if (place < trial.places.size()) text = fmt::format("its {} GEMM", trial.places[place]);
  if (place < trial.errors.size()) {
    text += std::isfinite(trial.errors[place]) ? fmt::format(" was off by {:.0f}%", 100 * trial.errors[place])
                                               : " was not finite";
  }
  if (trial.losses.size() == 2)
    text += fmt::format("; loss {:.2f}, {:.2f} in the trial", trial.losses[0], trial.losses[1]);
  return text;
}

std::string norm_text(const io::JournalEvent& event) {
  if (!event.ratio) return "its gradient is gone";
  if (!std::isfinite(*event.ratio)) return "its gradient is not finite";
  return fmt::format("gradient norm {:.2f} times its usual", *event.ratio);
}

}  // namespace

std::optional<WorstEvent> worst_event(const std::string& run_folder) {
  const run::RunFolder folder(run_folder);
  if (!is_there(folder.journal())) return std::nullopt;
  std::optional<WorstEvent> worst;
  for (const io::JournalStepEntry& entry : io::read_journal(folder.journal()).steps) {
    for (const io::JournalEvent& event : entry.events) {
      if (event.event != io::JournalEventKind::admitted) continue;
      WorstEvent found{.event = event, .trial = trial_of(entry, event.unit)};
      if (!worst || is_worse(found, *worst)) worst = std::move(found);
    }
  }
  if (!worst) return std::nullopt;
  if (is_there(folder.evidence())) {
    for (run::EvidenceLine& line : run::read_evidence(folder.evidence())) {
      if (line.step == worst->event.step && line.unit == worst->event.unit) worst->evidence = std::move(line);
    }
  }
  if (is_there(folder.faults())) {
    worst->faulty = faulty_units(folder.faults(), batch_of(folder, worst->event.step));
  }
  return worst;
}

std::string worst_event_text(const WorstEvent& worst) {
  std::string text = fmt::format("step {}, {}: {}", worst.event.step, worst.event.unit,
                                 worst.trial ? trial_text(*worst.trial, worst.event.unit) : norm_text(worst.event));
  if (worst.evidence) {
    text += fmt::format("; its quantization: {:.1f}% saturated, {:.1f}% flushed to 0, relative error {:.2f}",
                        100 * worst.evidence->saturated, 100 * worst.evidence->flushed, worst.evidence->relative_error);
  }
  if (worst.faulty) text += " (" + fault_text(*worst.faulty, worst.event.unit) + ")";
  return text;
}

}  // namespace gnmr::lab
