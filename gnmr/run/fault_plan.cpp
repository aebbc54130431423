// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/fault_plan.h"

#include <algorithm>

#include "gnmr/core/error.h"
#include "gnmr/io/csv_record.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/run/random_stream.h"

namespace gnmr::run {

std::vector<PlannedFault> plan_faults(const FaultSettings& settings) {
  if (settings.every < 1 || settings.steps < 1 || settings.from < 1) {
    throw Error("[faults] expected every, steps and from to be at least 1");
  }
  std::vector<PlannedFault> faults;
  if (settings.unit_count == 0 || settings.kinds.empty()) return faults;
  std::vector<std::int64_t> free_from(settings.unit_count, 1);  // first step in which a unit may have a fault
  std::vector<UnitIndex> free_units;
  for (std::int64_t step = settings.from; step <= settings.run_steps; ++step) {
    // A stream a step: what is drawn in one step has no part in the next.
    RandomStream random(RandomPurpose::faults, {settings.seed, step});
    if (random.below(static_cast<std::uint64_t>(settings.every)) != 0) continue;
    free_units.clear();
    for (UnitIndex unit = 0; unit < settings.unit_count; ++unit) {
      if (free_from[unit] <= step) free_units.push_back(unit);
    }
    if (free_units.empty()) continue;
    const UnitIndex unit = free_units[random.below(free_units.size())];
    // Compared this way round because the sum may not fit.
    const std::int64_t left = settings.run_steps - step;
    const std::int64_t last = settings.steps - 1 > left ? settings.run_steps : step + settings.steps - 1;
    faults.push_back({.step_first = step,
                      .step_last = last,
                      .unit = unit,
                      .kind = settings.kinds[random.below(settings.kinds.size())]});
    free_from[unit] = last + 2;
  }
  return faults;
}

std::string truth_text(const std::vector<std::string>& unit_names, const std::vector<PlannedFault>& faults,
                       std::int64_t run_steps) {
  std::string text = "step";
  for (const std::string& name : unit_names) {
    text += ',';
    io::append_csv_cell(text, name);
  }
  text += '\n';
  std::string cells;
  for (std::int64_t step = 1; step <= run_steps; ++step) {
    cells.assign(2 * unit_names.size(), ',');
    for (std::size_t unit = 0; unit < unit_names.size(); ++unit) cells[2 * unit + 1] = '0';
    for (const PlannedFault& fault : faults) {
      if (fault.unit >= unit_names.size()) throw Error("[faults] a fault is in a unit that has no name");
      if (fault.step_first <= step && step <= fault.step_last) cells[2 * std::size_t{fault.unit} + 1] = '1';
    }
    text += std::to_string(step) + cells + '\n';
  }
  return text;
}

void write_truth(const std::string& path, const std::vector<std::string>& unit_names,
                 const std::vector<PlannedFault>& faults, std::int64_t run_steps) {
  io::replace_file(path, truth_text(unit_names, faults, run_steps));
}

}  // namespace gnmr::run
