// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/run_detection.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "gnmr/io/truth.h"
#include "gnmr/lab/detection_score.h"

namespace gnmr::lab {
namespace {

/// Follows who is in recovery.
class Recoveries {
 public:
  explicit Recoveries(const std::vector<std::string>& names) {
    for (UnitIndex unit = 0; unit < names.size(); ++unit) index_.emplace(names[unit], unit);
  }

  /// The decision that the events of a step show, as one after a batch; valid until the next call.
  Decision decision(std::int64_t batch, const std::vector<io::JournalEvent>& events) {
    admitted_.clear();
    for (const io::JournalEvent& event : events) {
      if (event.event == io::JournalEventKind::released) in_recovery_.erase(index_.at(event.unit));
    }
    for (const io::JournalEvent& event : events) {
      if (event.event == io::JournalEventKind::admitted) admitted_.push_back(index_.at(event.unit));
    }
    in_recovery_.insert(admitted_.begin(), admitted_.end());
    recovered_.assign(in_recovery_.begin(), in_recovery_.end());
    return {.step = batch, .recovered = recovered_, .admitted = admitted_};
  }

 private:
  std::map<std::string, UnitIndex> index_;
  std::set<UnitIndex> in_recovery_;
  std::vector<UnitIndex> recovered_;
  std::vector<UnitIndex> admitted_;
};

bool same_units(const io::Journal& journal, const std::vector<std::string>& names) {
  if (!journal.header || journal.header->units.size() != names.size()) return false;
  return std::equal(names.begin(), names.end(), journal.header->units.begin(),
                    [](const std::string& name, const Unit& unit) { return unit.name == name; });
}

}  // namespace

std::optional<Detection> detection_in(const io::Journal& journal, const run::RunBatches& batches,
                                      const std::string& truth_path) {
  std::error_code ignored;
  if (!std::filesystem::exists(truth_path, ignored)) return std::nullopt;
  io::TruthReader truth = io::open_truth(truth_path);
  if (!same_units(journal, truth.units())) return std::nullopt;
  Recoveries recoveries(truth.units());
  DetectionScore score(truth.units().size());
  // Steps in their order; fresh batches, and rows, come in theirs. A row whose step was not recorded decides nothing.
  io::TruthRow row;
  bool has_row = truth.next(row);
  const auto add_row = [&](const std::vector<io::JournalEvent>& events) {
    score.add(row.faulty, recoveries.decision(row.step, events));
    has_row = truth.next(row);
  };
  for (const io::JournalStepEntry& entry : journal.steps) {
    const std::int64_t batch = batches.of(entry.number);
    while (has_row && row.step < batch) add_row({});
    if (has_row && row.step == batch) {
      add_row(entry.events);
    } else {
      score.add_again(recoveries.decision(batch, entry.events));
    }
  }
  while (has_row && row.step <= batches.last()) add_row({});
  return Detection{.faults = score.faults(),
                   .recall = score.recall(),
                   .precision = score.precision(),
                   .delay = score.mean_delay(),
                   .largest_delay = score.largest_delay(),
                   .outside = score.admissions() - score.true_admissions()};
}

}  // namespace gnmr::lab
