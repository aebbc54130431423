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

/// The units that had a fault in the step of the event, or in the one before it: an admission may come so late.
std::vector<std::string> faulty_units(const std::string& truth_path, std::int64_t step) {
  io::TruthReader truth = io::open_truth(truth_path);
  std::vector<bool> before(truth.units().size());
  std::vector<std::string> names;
  for (io::TruthRow row; truth.next(row) && row.step <= step;) {
    for (std::size_t unit = 0; unit < before.size(); ++unit) {
      const bool now = row.faulty[unit] != 0;
      if (row.step == step && (now || before[unit])) names.push_back(truth.units()[unit]);
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
  if (is_there(folder.faults())) worst->faulty = faulty_units(folder.faults(), worst->event.step);
  return worst;
}

std::string worst_event_text(const WorstEvent& worst) {
  std::string text = fmt::format("step {}, {}: {}", worst.event.step, worst.event.unit, norm_text(worst.event));
  if (worst.evidence) {
    text += fmt::format("; its casts: {:.1f}% saturated, {:.1f}% flushed to 0, relative error {:.2f}",
                        100 * worst.evidence->saturated, 100 * worst.evidence->flushed, worst.evidence->relative_error);
  }
  if (worst.faulty) text += " (" + fault_text(*worst.faulty, worst.event.unit) + ")";
  return text;
}

}  // namespace gnmr::lab
