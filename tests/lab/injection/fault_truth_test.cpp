// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/injection/fault_truth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gnmr/core/error.h"
#include "gnmr/io/truth.h"
#include "gnmr/io/whole_file.h"
#include "io/temporary_folder.h"

namespace gnmr::lab {
namespace {

const std::vector<std::string> kNames{"layers.0.up", "with, comma", "with \"quote\""};

std::vector<PlannedFault> some_faults() {
  return plan_faults({.layer_count = 3,
                      .kinds = {{FaultKind::saturate}, {FaultKind::bit_flip, true}, {FaultKind::bad_batch}},
                      .every = 6,
                      .steps = 5,
                      .from = 40,
                      .seed = 3,
                      .run_steps = 300});
}

TEST(FaultTruth, ReadsBackAsTheFaults) {
  const test::TemporaryFolder folder;
  const std::vector<PlannedFault> faults = some_faults();
  io::replace_file(folder.file("faults.csv"), truth_text(kNames, faults, 300));
  io::TruthReader reader = io::open_truth(folder.file("faults.csv"));
  EXPECT_EQ(reader.units(), kNames);
  io::TruthRow row;
  std::int64_t step = 0;
  std::int64_t faulty_cells = 0;
  while (reader.next(row)) {
    ASSERT_EQ(row.step, ++step);
    std::vector<std::uint32_t> faulty;
    for (std::uint32_t layer = 0; layer < 3; ++layer) {
      const bool expected = std::any_of(faults.begin(), faults.end(), [&](const PlannedFault& fault) {
        return fault.layer == layer && fault.step_first <= step && step <= fault.step_last;
      });
      EXPECT_EQ(row.faulty[layer] != 0, expected);
      if (expected) faulty.push_back(layer);
      faulty_cells += row.faulty[layer];
    }
    EXPECT_EQ(faulty_layers(faults, step), faulty);
  }
  EXPECT_EQ(step, 300);
  EXPECT_GT(faulty_cells, 50);
  const std::vector<std::string> one_name{"a"};
  EXPECT_THROW(truth_text(one_name, faults, 300), Error);
}

TEST(FaultTruth, ListHasEveryFault) {
  const std::vector<PlannedFault> faults = some_faults();
  std::istringstream lines(fault_list_text(kNames, faults, 64));
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    ASSERT_LT(count, faults.size());
    const PlannedFault& fault = faults[count];
    const nlohmann::json expected = {
        {"kind", "fault"},
        {"fault", fault.kind == FaultKind::saturate   ? "saturate"
                  : fault.kind == FaultKind::bit_flip ? "bit-flip"
                                                      : "bad-batch"},
        {"site", fault.kind == FaultKind::saturate   ? "cast"
                 : fault.kind == FaultKind::bit_flip ? "after-cast"
                                                     : "run"},
        {"layer", fault.layer == kNoLayer ? nlohmann::json() : nlohmann::json(kNames[fault.layer])},
        {"first", fault.step_first},
        {"last", fault.step_last},
        {"transient", fault.kind == FaultKind::bit_flip},
        {"strength", 64}};
    EXPECT_EQ(nlohmann::json::parse(line), expected) << line;
  }
  EXPECT_EQ(count, faults.size());
  const std::vector<PlannedFault> one{{.step_first = 60, .step_last = 64, .steps = 5, .layer = 0}};
  EXPECT_EQ(fault_list_text(kNames, one, 64),
            "{\"kind\":\"fault\",\"fault\":\"saturate\",\"site\":\"cast\",\"layer\":\"layers.0.up\",\"first\":60,"
            "\"last\":64,\"transient\":false,\"strength\":64}\n");
}

TEST(Oracle, HoldsForTheLockAndIsRenewed) {
  const std::vector<PlannedFault> one{{.step_first = 10, .step_last = 14, .steps = 5, .layer = 2}};
  const auto steps_held = [&](std::int64_t lock_steps) {
    std::vector<std::int64_t> held;
    for (std::int64_t step = 1; step <= 60; ++step) {
      if (!oracle_layers(one, {.lock_steps = lock_steps, .most = 1}, step).empty()) held.push_back(step);
    }
    return held;
  };
  const auto range = [](std::int64_t first, std::int64_t last) {
    std::vector<std::int64_t> steps;
    for (std::int64_t step = first; step <= last; ++step) steps.push_back(step);
    return steps;
  };
  EXPECT_EQ(steps_held(1), range(10, 14));
  EXPECT_EQ(steps_held(2), range(10, 15));  // 10, 12 and 14 begin a lock
  EXPECT_EQ(steps_held(4), range(10, 17));  // one renewal
  EXPECT_EQ(steps_held(5), range(10, 14));  // the fault does not last beyond the lock
  EXPECT_EQ(steps_held(20), range(10, 29));
  EXPECT_TRUE(oracle_layers(one, {.lock_steps = 5, .most = 0}, 10).empty());
  EXPECT_THROW(oracle_layers(one, {.lock_steps = 0, .most = 1}, 10), Error);
}

// Against a clerk who goes from step to step with a list of locks.
TEST(Oracle, GivesTheRoomToEarlierFaults) {
  const FaultSettings settings{.layer_count = 6,
                               .kinds = {{FaultKind::saturate}, {FaultKind::drift}, {FaultKind::bad_batch}},
                               .every = 4,
                               .steps = 3,
                               .from = 5,
                               .seed = 9,
                               .run_steps = 600};
  const std::vector<PlannedFault> faults = plan_faults(settings);
  for (const std::uint32_t most : {1U, 2U, 6U}) {
    constexpr std::int64_t kLock = 7;
    std::vector<std::int64_t> lock_end(faults.size(), 0);  // first step after the lock
    std::size_t full = 0;
    for (std::int64_t step = 1; step <= settings.run_steps; ++step) {
      std::vector<std::uint32_t> held;
      for (std::size_t i = 0; i < faults.size(); ++i) {
        if (faults[i].layer == kNoLayer || step < faults[i].step_first) continue;
        const bool faulty = step <= faults[i].step_last;
        if (faulty && lock_end[i] <= step) lock_end[i] = step + kLock;
        if (step >= lock_end[i] || held.size() == most) continue;
        if (std::count(held.begin(), held.end(), faults[i].layer) == 0) held.push_back(faults[i].layer);
      }
      std::sort(held.begin(), held.end());
      EXPECT_EQ(oracle_layers(faults, {.lock_steps = kLock, .most = most}, step), held);
      if (held.size() == most) ++full;
    }
    EXPECT_GT(full, 10U);
  }
}

}  // namespace
}  // namespace gnmr::lab
