// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/worst_event.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "gnmr/io/journal_reader.h"
#include "gnmr/io/truth.h"
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

bool is_faulty(const std::string& truth_path, const io::JournalEvent& event) {
  io::TruthReader truth = io::open_truth(truth_path);
  const auto column = std::find(truth.units().begin(), truth.units().end(), event.unit) - truth.units().begin();
  if (column == std::ssize(truth.units())) return false;
  // An admission may come one step after the last faulty one.
  bool before = false;
  for (io::TruthRow row; truth.next(row);) {
    const bool now = row.faulty[static_cast<std::size_t>(column)] != 0;
    if (row.step == event.step) return now || before;
    before = now;
  }
  return false;
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
      if (!worst || severity_of(event) > severity_of(worst->event)) worst = WorstEvent{.event = event};
    }
  }
  if (!worst) return std::nullopt;
  if (is_there(folder.evidence())) {
    for (run::EvidenceLine& line : run::read_evidence(folder.evidence())) {
      if (line.step == worst->event.step && line.unit == worst->event.unit) worst->evidence = std::move(line);
    }
  }
  if (is_there(folder.faults())) worst->in_fault = is_faulty(folder.faults(), worst->event);
  return worst;
}

std::string worst_event_text(const WorstEvent& worst) {
  std::string text = fmt::format("step {}, {}: {}", worst.event.step, worst.event.unit, norm_text(worst.event));
  if (worst.evidence) {
    text += fmt::format("; its casts: {:.1f}% saturated, {:.1f}% flushed to 0, relative error {:.2f}",
                        100 * worst.evidence->saturated, 100 * worst.evidence->flushed, worst.evidence->relative_error);
  }
  if (worst.in_fault) text += *worst.in_fault ? " (a fault was injected there)" : " (no fault was injected there)";
  return text;
}

}  // namespace gnmr::lab
