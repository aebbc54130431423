// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/fault_harm.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace gnmr::lab {
namespace {

using Place = std::pair<std::string, std::int64_t>;  // layer and batch

/// What harm.jsonl says of one fault.
struct Measured {
  std::int64_t steps = 0;  // in which its layer ran low
  double largest = 0;
};

Measured measured(const ListedFault& fault, std::span<const run::HarmLine> harm) {
  Measured result;
  for (const run::HarmLine& line : harm) {
    if (line.layer != fault.layer || line.step < fault.first || line.step > fault.last) continue;
    ++result.steps;
    result.largest = std::max(result.largest, line.distance);
  }
  return result;
}

/// What a run did about faults, by batch.
struct Answers {
  std::set<Place> admissions;
  std::set<std::int64_t> reruns;
};

Answers answers_of(const io::Journal* journal, const run::RunBatches& batches) {
  Answers answers;
  if (journal == nullptr) return answers;
  for (const io::JournalStepEntry& entry : journal->steps) {
    const std::int64_t batch = batches.of(entry.number);
    if (!entry.trials.empty()) answers.reruns.insert(batch);
    for (const io::JournalEvent& event : entry.events) {
      if (event.event == io::JournalEventKind::admitted) answers.admissions.emplace(event.unit, batch);
    }
  }
  return answers;
}

bool was_answered(const ListedFault& fault, const Answers& answers) {
  if (fault.transient && answers.reruns.contains(fault.first)) return true;
  const auto first = answers.admissions.lower_bound({fault.layer, fault.first});
  return first != answers.admissions.end() && *first <= Place{fault.layer, fault.last};
}

}  // namespace

FaultHarm fault_harm(std::span<const ListedFault> faults, std::span<const run::HarmLine> harm,
                     const run::RunBatches& batches, const io::Journal* journal) {
  const Answers answers = answers_of(journal, batches);
  FaultHarm result;
  for (ListedFault fault : faults) {
    if (fault.first > batches.last()) continue;
    fault.last = std::min(fault.last, batches.last());
    if (fault.layer.empty()) {
      ++result.of_run;
      continue;
    }
    ++result.faults;
    const Measured seen = measured(fault, harm);
    if (seen.steps == 0) ++result.covered;
    if (!(seen.largest > kHarmfulDistance)) continue;
    ++result.harmful;
    const bool partly_high = seen.steps < fault.last - fault.first + 1;
    if (partly_high || was_answered(fault, answers)) ++result.met;
  }
  return result;
}

}  // namespace gnmr::lab
