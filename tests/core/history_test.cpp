// SPDX-License-Identifier: Apache-2.0
// Every set of kernels gives the same bits as every other, on plain steps and on odd ones.
#include "gnmr/core/history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "core/random_run.h"

namespace gnmr {
namespace {

using testing::NormArrays;
using testing::Random;
using testing::RandomRun;

UnitState saved(const History& history, UnitIndex unit) {
  UnitState state;
  history.save_unit(unit, state);
  return state;
}

/// A kernel that works one unit at a time: what the lane code must agree with.
void ratios_one_by_one(const SignalColumns& columns, const SignalRange& range, SignalTotals& totals) {
  for (std::size_t unit = range.first; unit < range.last && unit < columns.units; ++unit) {
    const double norm = static_cast<const double*>(range.norms)[unit - range.first];
    if (range.sampled == nullptr || range.sampled[unit - range.first] != 0) {
      ratio_of_exception(columns, unit, norm, totals);
    }
  }
}

void changes_one_by_one(const SignalColumns& columns, const SignalRange& range, SignalTotals& totals) {
  for (std::size_t unit = range.first; unit < range.last && unit < columns.units; ++unit) {
    const double norm = static_cast<const double*>(range.norms)[unit - range.first];
    columns.next.mean_sum[unit] = columns.memory.mean_sum[unit];
    columns.next.mean_weight[unit] = columns.memory.mean_weight[unit];
    columns.next.rise_change_sum[unit] = columns.memory.rise_change_sum[unit];
    columns.next.fall_change_sum[unit] = columns.memory.fall_change_sum[unit];
    if (range.sampled == nullptr || range.sampled[unit - range.first] != 0) {
      change_of_exception(columns, unit, norm, totals);
    } else {
      columns.out.status[unit] = status::kAbsent;
      columns.out.unsampled[totals.unsampled++] = static_cast<std::uint32_t>(unit);
    }
  }
}

const SignalKernels kOneByOne{"one by one", nullptr, ratios_one_by_one, nullptr, changes_one_by_one};

TEST(History, EveryKernelGivesTheSameBits) {
  const SignalKernelList list = available_signal_kernels();
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    Random random(seed);
    const Options options = testing::random_options(random);
    const std::size_t units = 1 + random.below(70);
    History expected(units, options, &kOneByOne);
    std::deque<History> histories;  // they do not move
    for (std::size_t i = 0; i < list.count; ++i) histories.emplace_back(units, options, list.kernels[i]);
    RandomRun run(random, units);
    for (int step = 0; step < 300; ++step) {
      const NormArrays arrays(run.next());
      const Observation observation{.step = step, .norms = arrays.norms, .sampled = arrays.sampled};
      const History::Findings& want = expected.observe(observation);
      expected.commit();
      for (std::size_t i = 0; i < histories.size(); ++i) {
        const History::Findings& got = histories[i].observe(observation);
        ASSERT_EQ(got.centre, want.centre) << list.kernels[i]->name << ", seed " << seed << ", step " << step;
        ASSERT_EQ(got.sampled, want.sampled);
        ASSERT_EQ(got.finite, want.finite);
        ASSERT_TRUE(std::equal(got.risks.begin(), got.risks.end(), want.risks.begin(), want.risks.end()))
            << list.kernels[i]->name << ", seed " << seed << ", step " << step;
        histories[i].commit();
      }
    }
    for (History& history : histories) {
      for (UnitIndex unit = 0; unit < units; ++unit) ASSERT_EQ(saved(history, unit), saved(expected, unit)) << seed;
    }
  }
}

TEST(History, FloatNormsAreWidened) {
  constexpr std::size_t kUnits = 37;
  History from_float(kUnits, {});
  History from_double(kUnits, {});
  Random random(5);
  for (int step = 0; step < 200; ++step) {
    std::vector<float> floats(kUnits);
    for (float& norm : floats) norm = static_cast<float>(std::exp(0.2 * random.normal()));
    const std::vector<double> doubles(floats.begin(), floats.end());
    from_float.observe({.step = step, .norms = floats});
    from_float.commit();
    from_double.observe({.step = step, .norms = doubles});
    from_double.commit();
  }
  for (UnitIndex unit = 0; unit < kUnits; ++unit) ASSERT_EQ(saved(from_float, unit), saved(from_double, unit));
}

// Past a size at which columns no longer fit the caches, pass 2 divides again instead of reading back.
TEST(History, ManyUnitsAreTreatedAsFewAre) {
  constexpr std::size_t kMany = (std::size_t{1} << 18) + 5;
  constexpr std::size_t kFew = 41;
  History many(kMany, {});
  History few(kFew, {});
  Random random(11);
  std::vector<double> pattern(kFew);
  std::vector<double> norms(kMany);
  std::vector<std::uint8_t> sampled(kMany);
  for (int step = 0; step < 40; ++step) {
    for (double& norm : pattern) {
      norm = std::exp(0.1 * random.normal());
      if (random.chance(0.02)) norm *= 9;
    }
    std::vector<std::uint8_t> pattern_sampled(kFew);
    for (std::uint8_t& flag : pattern_sampled) flag = random.chance(0.9) ? 1 : 0;
    // Whole copies of the pattern, so that the centre is the same up to the rest.
    for (std::size_t unit = 0; unit < kMany; ++unit) {
      const bool in_copy = unit < kMany / kFew * kFew;
      norms[unit] = pattern[unit % kFew];
      sampled[unit] = in_copy ? pattern_sampled[unit % kFew] : std::uint8_t{0};
    }
    many.observe({.step = step, .norms = norms, .sampled = sampled});
    many.commit();
    few.observe({.step = step, .norms = pattern, .sampled = pattern_sampled});
    few.commit();
  }
  for (const std::size_t copy : {std::size_t{0}, std::size_t{1}, kMany / kFew - 1}) {
    for (UnitIndex unit = 0; unit < kFew; ++unit) {
      ASSERT_EQ(saved(many, static_cast<UnitIndex>(copy * kFew + unit)), saved(few, unit)) << copy << ' ' << unit;
    }
  }
}

// docs/algorithm.md: p and w below 2^-60 become 0; without it a step over denormals slowed down fifteenfold.
TEST(History, NoMemoryEndsAsADenormal) {
  Options options;
  options.fall_tau = 0;
  History history(8, options);
  const std::vector<double> norms(8, 1.0);
  for (int step = 0; step < 20000; ++step) {
    history.observe({.step = step, .norms = norms});
    history.commit();
  }
  const UnitState state = saved(history, 0);
  EXPECT_EQ(state.mean_sum == 0 || std::isnormal(state.mean_sum), true);
  EXPECT_NEAR(state.mean_sum, 1.0, 1e-12);
  WeightTable weights(0.98);
  weights.extend_to(20000);
  for (std::uint32_t count = 0; count <= 20000; ++count) {
    const double weight = weights.weight(count);
    ASSERT_TRUE(weight == 0 || weight >= 0x1p-60);
  }
  EXPECT_EQ(weights.weight(20000), 0.0);
}

// A decay so near to 1 that the table ends before the weight does.
TEST(WeightTable, GoesOnBeyondItsTable) {
  constexpr double kDecay = 0.999999;
  constexpr std::uint32_t kLast = WeightTable::kTabulated + 3 * WeightTable::kStride + 7;
  WeightTable table(kDecay);
  table.extend_to(kLast);
  double weight = 1.0;
  for (std::uint32_t count = 0; count <= kLast; ++count) {
    const bool near_an_end = count < 3 || count + 3 > WeightTable::kTabulated;
    if (near_an_end && (count % 1000 < 3 || count + 9 > kLast || count % WeightTable::kStride < 2)) {
      ASSERT_EQ(table.weight(count), weight) << count;
    }
    weight = unit_math::next_weight(kDecay, weight);
  }
}

}  // namespace
}  // namespace gnmr
