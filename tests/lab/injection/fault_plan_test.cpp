// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/injection/fault_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "gnmr/core/error.h"

namespace gnmr::lab {
namespace {

FaultSettings many() {
  return {.layer_count = 12,
          .kinds = {{FaultKind::saturate}, {FaultKind::overflow}},
          .every = 12,
          .steps = 5,
          .from = 40,
          .seed = 3,
          .run_steps = 20000};
}

/// Every kind that ends, sticky and, where there is such a thing, transient.
FaultSettings all_kinds() {
  FaultSettings settings = many();
  settings.kinds.clear();
  for (const FaultKindSpec& spec : fault_kinds()) {
    if (is_reenacted_bug(spec.kind)) continue;
    settings.kinds.push_back({spec.kind, false});
    if (spec.site != FaultSite::run) settings.kinds.push_back({spec.kind, true});
  }
  return settings;
}

std::int64_t expected_steps(const PlannedFault& fault, const FaultSettings& settings) {
  if (fault.transient || fault.kind == FaultKind::bad_batch) return 1;
  return fault.kind == FaultKind::drift ? 8 * settings.steps : settings.steps;
}

TEST(FaultPlan, KeepsItsPromises) {
  for (const FaultSettings& settings : {many(), all_kinds()}) {
    const std::vector<PlannedFault> faults = plan_faults(settings);
    const double expected = 19961.0 / 12;
    EXPECT_NEAR(static_cast<double>(faults.size()), expected, 5 * std::sqrt(expected));
    std::map<std::uint32_t, std::int64_t> last;
    std::set<std::pair<FaultKind, bool>> kinds;
    std::int64_t before = 0;
    for (const PlannedFault& fault : faults) {
      EXPECT_GE(fault.step_first, settings.from);
      EXPECT_GT(fault.step_first, before);
      EXPECT_EQ(fault.steps, expected_steps(fault, settings));
      EXPECT_EQ(fault.step_last, std::min(fault.step_first + fault.steps - 1, settings.run_steps));
      EXPECT_EQ(fault.layer == kNoLayer, fault.kind == FaultKind::bad_batch);
      EXPECT_TRUE(fault.layer == kNoLayer || fault.layer < settings.layer_count);
      // A sound step lies between two faults of a layer.
      if (last.count(fault.layer) != 0) {
        EXPECT_GT(fault.step_first, last[fault.layer] + 1);
      }
      last[fault.layer] = fault.step_last;
      before = fault.step_first;
      kinds.emplace(fault.kind, fault.transient);
    }
    EXPECT_EQ(kinds.size(), settings.kinds.size());
  }
}

TEST(FaultPlan, SeveralLayersAreAtFaultAtOnce) {
  FaultSettings settings = many();
  settings.every = 40;
  const std::vector<PlannedFault> alone = plan_faults(settings);
  for (const std::int64_t layers : {3, 12, 1000}) {
    settings.layers = layers;
    std::map<std::int64_t, std::set<std::uint32_t>> begun;
    std::map<std::int64_t, std::set<FaultKind>> kinds;
    std::map<std::uint32_t, std::int64_t> last;
    for (const PlannedFault& fault : plan_faults(settings)) {
      EXPECT_TRUE(begun[fault.step_first].insert(fault.layer).second) << "a layer twice in step " << fault.step_first;
      kinds[fault.step_first].insert(fault.kind);
      EXPECT_LT(fault.layer, settings.layer_count);
      if (last.count(fault.layer) != 0) {
        EXPECT_GT(fault.step_first, last[fault.layer] + 1);
      }
      last[fault.layer] = fault.step_last;
    }
    std::size_t complete = 0;
    for (const auto& [step, found] : begun) {
      EXPECT_LE(found.size(), static_cast<std::size_t>(std::min<std::int64_t>(layers, 12)));
      EXPECT_EQ(kinds[step].size(), 1U);
      if (found.size() == static_cast<std::size_t>(std::min<std::int64_t>(layers, 12))) ++complete;
    }
    // Where an earlier fault lasts fewer are free, or none.
    EXPECT_GT(complete, begun.size() * 2 / 3);
    EXPECT_GT(begun.size(), alone.size() * 2 / 3);
    EXPECT_LE(begun.size(), alone.size());
  }
}

TEST(FaultPlan, ABugBeginsOnceAndStays) {
  FaultSettings settings = many();
  settings.kinds = {{FaultKind::cached_weight}, {FaultKind::wrong_amax}};
  settings.layers = 3;
  settings.run_steps = 400;
  std::map<FaultKind, std::vector<PlannedFault>> found;
  for (const PlannedFault& fault : plan_faults(settings)) found[fault.kind].push_back(fault);
  ASSERT_EQ(found.size(), 2U);
  std::set<std::uint32_t> layers;
  for (const auto& [kind, faults] : found) {
    ASSERT_EQ(faults.size(), 3U) << to_string(kind);
    for (const PlannedFault& fault : faults) {
      EXPECT_EQ(fault.step_first, faults[0].step_first);
      EXPECT_EQ(fault.step_last, 400);
      EXPECT_TRUE(layers.insert(fault.layer).second) << "two bugs in one layer";
    }
  }
  // Other faults come as they did, in the other layers.
  settings.kinds = {{FaultKind::missed_amax}, {FaultKind::saturate}};
  EXPECT_GT(plan_faults(settings).size(), 20U);
}

TEST(FaultPlan, IsAFunctionOfItsSettings) {
  const FaultSettings settings = all_kinds();
  EXPECT_EQ(plan_faults(settings), plan_faults(settings));
  FaultSettings other = settings;
  other.seed = 4;
  EXPECT_NE(plan_faults(other), plan_faults(settings));
  // A longer run begins with the faults of a shorter one.
  const std::vector<PlannedFault> all = plan_faults(settings);
  for (const std::int64_t run_steps : {500, 501, 510, 540}) {
    FaultSettings shorter = settings;
    shorter.run_steps = run_steps;
    const std::vector<PlannedFault> some = plan_faults(shorter);
    ASSERT_GT(some.size(), 10U);
    for (std::size_t i = 0; i < some.size(); ++i) {
      PlannedFault expected = all[i];
      expected.step_last = std::min(expected.step_last, run_steps);
      EXPECT_EQ(some[i], expected);
    }
    EXPECT_GT(all[some.size()].step_first, run_steps);
  }
}

// The runs of docs/stress.md can be had again.
TEST(FaultPlan, IsStillTheOneOfEarlierRuns) {
  FaultSettings settings = many();
  settings.run_steps = 118;
  struct Expected {
    std::int64_t first, last;
    std::uint32_t layer;
    FaultKind kind;
  };
  const Expected expected[] = {{47, 51, 9, FaultKind::overflow},   {59, 63, 4, FaultKind::overflow},
                               {95, 99, 5, FaultKind::overflow},   {100, 104, 6, FaultKind::overflow},
                               {102, 106, 5, FaultKind::saturate}, {112, 116, 6, FaultKind::overflow}};
  const std::vector<PlannedFault> faults = plan_faults(settings);
  ASSERT_EQ(faults.size(), std::size(expected));
  for (std::size_t i = 0; i < faults.size(); ++i) {
    EXPECT_EQ(faults[i].step_first, expected[i].first);
    EXPECT_EQ(faults[i].step_last, expected[i].last);
    EXPECT_EQ(faults[i].layer, expected[i].layer);
    EXPECT_EQ(faults[i].kind, expected[i].kind);
    EXPECT_FALSE(faults[i].transient);
  }
}

TEST(FaultPlan, Ends) {
  FaultSettings settings = many();
  settings.kinds.clear();
  EXPECT_TRUE(plan_faults(settings).empty());
  settings = many();
  settings.layer_count = 0;
  EXPECT_TRUE(plan_faults(settings).empty());
  settings.kinds.push_back({FaultKind::bad_batch});
  EXPECT_FALSE(plan_faults(settings).empty()) << "a bad batch needs no layer";
  settings = many();
  settings.from = settings.run_steps + 1;
  EXPECT_TRUE(plan_faults(settings).empty());
  for (const FaultKind kind : {FaultKind::saturate, FaultKind::drift}) {
    settings = many();
    settings.kinds = {{kind}};
    settings.layer_count = 1;
    settings.every = 1;
    settings.steps = std::numeric_limits<std::int64_t>::max();
    ASSERT_EQ(plan_faults(settings).size(), 1U);
    EXPECT_EQ(plan_faults(settings)[0].step_last, settings.run_steps);
  }
  settings.every = 0;
  EXPECT_THROW(plan_faults(settings), Error);
}

}  // namespace
}  // namespace gnmr::lab
