// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/fault_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "gnmr/core/error.h"
#include "gnmr/io/truth.h"
#include "io/temporary_folder.h"

namespace gnmr::run {
namespace {

FaultSettings many() {
  return {.unit_count = 12,
          .kinds = {"saturate", "overflow"},
          .every = 12,
          .steps = 5,
          .from = 40,
          .seed = 3,
          .run_steps = 20000};
}

TEST(FaultPlan, KeepsItsPromises) {
  const FaultSettings settings = many();
  const std::vector<PlannedFault> faults = plan_faults(settings);
  EXPECT_NEAR(static_cast<double>(faults.size()), 19961.0 / 12, 5 * std::sqrt(19961.0 / 12));
  std::vector<std::int64_t> last(settings.unit_count, -10);
  std::set<std::string> kinds;
  std::int64_t before = 0;
  for (const PlannedFault& fault : faults) {
    EXPECT_GE(fault.step_first, settings.from);
    EXPECT_GT(fault.step_first, before);
    EXPECT_EQ(fault.step_last, std::min<std::int64_t>(fault.step_first + 4, settings.run_steps));
    // A sound step lies between two faults of a unit.
    EXPECT_GT(fault.step_first, last.at(fault.unit) + 1);
    last[fault.unit] = fault.step_last;
    before = fault.step_first;
    kinds.insert(fault.kind);
  }
  EXPECT_EQ(kinds.size(), 2U);
}

TEST(FaultPlan, IsAFunctionOfItsSettings) {
  const FaultSettings settings = many();
  EXPECT_EQ(plan_faults(settings), plan_faults(settings));
  FaultSettings other = settings;
  other.seed = 4;
  EXPECT_NE(plan_faults(other), plan_faults(settings));
  // A longer run begins with the faults of a shorter one.
  FaultSettings shorter = settings;
  shorter.run_steps = 500;
  const std::vector<PlannedFault> all = plan_faults(settings);
  const std::vector<PlannedFault> some = plan_faults(shorter);
  ASSERT_GT(some.size(), 10U);
  for (std::size_t i = 0; i < some.size(); ++i) {
    EXPECT_EQ(some[i].step_first, all[i].step_first);
    EXPECT_EQ(some[i].unit, all[i].unit);
    EXPECT_EQ(some[i].step_last, std::min<std::int64_t>(all[i].step_last, 500));
  }
}

TEST(FaultPlan, Ends) {
  FaultSettings settings = many();
  settings.kinds.clear();
  EXPECT_TRUE(plan_faults(settings).empty());
  settings = many();
  settings.unit_count = 0;
  EXPECT_TRUE(plan_faults(settings).empty());
  settings = many();
  settings.from = settings.run_steps + 1;
  EXPECT_TRUE(plan_faults(settings).empty());
  settings = many();
  settings.unit_count = 1;
  settings.every = 1;
  settings.steps = std::numeric_limits<std::int64_t>::max();
  ASSERT_EQ(plan_faults(settings).size(), 1U);
  EXPECT_EQ(plan_faults(settings)[0].step_last, settings.run_steps);
  settings.every = 0;
  EXPECT_THROW(plan_faults(settings), Error);
}

TEST(FaultPlan, TruthReadsBackAsTheFaults) {
  const test::TemporaryFolder folder;
  FaultSettings settings = many();
  settings.unit_count = 3;
  settings.run_steps = 300;
  const std::vector<PlannedFault> faults = plan_faults(settings);
  const std::vector<std::string> names{"layers.0.up", "with, comma", "with \"quote\""};
  write_truth(folder.file("faults.csv"), names, faults, settings.run_steps);
  io::TruthReader reader = io::open_truth(folder.file("faults.csv"));
  EXPECT_EQ(reader.units(), names);
  io::TruthRow row;
  std::int64_t step = 0;
  std::int64_t faulty_cells = 0;
  while (reader.next(row)) {
    ASSERT_EQ(row.step, ++step);
    for (UnitIndex unit = 0; unit < 3; ++unit) {
      const bool expected = std::any_of(faults.begin(), faults.end(), [&](const PlannedFault& fault) {
        return fault.unit == unit && fault.step_first <= step && step <= fault.step_last;
      });
      EXPECT_EQ(row.faulty[unit] != 0, expected);
      faulty_cells += row.faulty[unit];
    }
  }
  EXPECT_EQ(step, 300);
  EXPECT_GT(faulty_cells, 50);
  EXPECT_THROW(truth_text({"a"}, faults, 300), Error);
}

}  // namespace
}  // namespace gnmr::run
