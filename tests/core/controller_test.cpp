// SPDX-License-Identifier: Apache-2.0
// The controller against the naive implementation: the same decisions, signals and histories, bit for bit.
#include "gnmr/core/controller.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/naive_controller.h"
#include "core/random_run.h"
#include "core/run_step.h"
#include "core/to_naive.h"
#include "gnmr/core/error.h"

namespace gnmr {
namespace {

using testing::NormArrays;
using testing::Random;
using testing::RandomRun;
using testing::run_step;
using testing::same_bits;
using testing::to_naive;

bool same(double ours, const std::optional<double>& expected) {
  return expected.has_value() ? same_bits(ours, *expected) : std::isnan(ours);
}

::testing::AssertionResult same_signals(const Controller& controller, const naive::Decision& expected) {
  for (UnitIndex unit = 0; unit < expected.signals.size(); ++unit) {
    const Signals ours = controller.signals(unit);
    const naive::Signals& theirs = expected.signals[unit];
    const bool severity = !theirs.sampled || same_bits(ours.severity, theirs.severity);
    if (ours.sampled != theirs.sampled || static_cast<int>(ours.risk) != static_cast<int>(theirs.kind) || !severity ||
        !same(ours.ratio, theirs.ratio) || !same(ours.delta, theirs.delta) || !same(ours.fall, theirs.fall)) {
      return ::testing::AssertionFailure()
             << "unit " << unit << ": ratio " << ours.ratio << " for " << theirs.ratio.value_or(-1) << ", delta "
             << ours.delta << " for " << theirs.delta.value_or(-1) << ", fall " << ours.fall << " for "
             << theirs.fall.value_or(-1) << ", severity " << ours.severity << " for " << theirs.severity << ", kind "
             << to_string(ours.risk) << " for " << static_cast<int>(theirs.kind);
    }
  }
  return ::testing::AssertionSuccess();
}

std::vector<double> padded_front(std::vector<double> kept, std::size_t window) {
  const double oldest = kept.empty() ? 1.0 : kept.front();
  kept.insert(kept.begin(), window - kept.size(), oldest);
  return kept;
}

/// A wait of n steps, one less at each decision, passes a unit over in n - 1 further ones.
std::int64_t waits(std::int64_t wait) { return wait > 0 ? wait - 1 : 0; }

::testing::AssertionResult same_histories(const Controller& controller, const naive::Controller& expected) {
  const ControllerState state = controller.save();
  const auto window = static_cast<std::size_t>(controller.options().window);
  for (std::size_t i = 0; i < state.units.size(); ++i) {
    const UnitState& unit = state.units[i];
    if (unit.samples != expected.k(i) || !same_bits(unit.mean_sum, expected.m(i)) ||
        !same_bits(unit.rise_change_sum, expected.q(i)) || !same_bits(unit.fall_change_sum, expected.f(i)) ||
        unit.ratios != padded_front(expected.ratios(i), window) ||
        unit.inverses != padded_front(expected.inverses(i), window) || unit.steps_left != expected.steps_left(i) ||
        unit.wait_steps != waits(expected.wait(i)) || unit.zero_muted != expected.zeros_ignored(i)) {
      return ::testing::AssertionFailure()
             << "history of unit " << i << ": samples " << unit.samples << " for " << expected.k(i) << ", mean sum "
             << unit.mean_sum << " for " << expected.m(i) << ", wait " << unit.wait_steps << " for "
             << expected.wait(i);
    }
  }
  return ::testing::AssertionSuccess();
}

/// Runs both on one random run; returns the unit-steps compared.
std::size_t compare(std::uint64_t seed, std::size_t units_count, int steps) {
  Random random(seed);
  const std::vector<Unit> units = testing::random_units(random, units_count);
  const Options options = testing::random_options(random);
  std::optional<naive::Controller> expected;
  try {
    expected.emplace(to_naive(units), to_naive(options));
  } catch (const std::invalid_argument&) {
    EXPECT_THROW(testing::norms_controller(units, options), Error) << "seed " << seed;
    return 0;
  }
  Controller controller = testing::norms_controller(units, options);
  EXPECT_EQ(controller.max_recovered(), static_cast<std::uint64_t>(expected->max_units()));
  EXPECT_EQ(controller.max_recovered_cost(), expected->cost_limit());
  RandomRun run(random, units_count);
  const bool as_floats = random.chance(0.3);
  for (int step = 0; step < steps; ++step) {
    auto norms = run.next();
    if (as_floats) {
      for (auto& norm : norms) {
        if (norm) norm = static_cast<double>(static_cast<float>(*norm));
      }
    }
    const NormArrays arrays(norms);
    const std::vector<float> floats(arrays.norms.begin(), arrays.norms.end());
    const naive::Decision theirs = expected->step(norms);
    if (random.chance(0.05)) {  // a step that begins twice, and a report that is an error, leave no trace
      controller.begin(step);
      NormArrays bad(run.next());
      bad.norms.back() = -1;
      bad.sampled.back() = 1;
      EXPECT_THROW(controller.report({.step = step, .norms = bad.norms, .sampled = bad.sampled}), Error);
    }
    const NormSpan span = as_floats ? NormSpan(floats) : NormSpan(arrays.norms);
    const Decision& ours = run_step(controller, {.step = step, .norms = span, .sampled = arrays.sampled}).decision;
    const bool same_decision = testing::same_decision(ours, theirs);
    const ::testing::AssertionResult signals = same_signals(controller, theirs);
    const bool look_inside = step % 97 == 0 || step + 1 == steps;
    const ::testing::AssertionResult histories =
        look_inside ? same_histories(controller, *expected) : ::testing::AssertionSuccess();
    if (!same_decision || !signals || !histories) {
      ADD_FAILURE() << "seed " << seed << ", step " << step << ": decision " << (same_decision ? "same" : "differs")
                    << "; " << signals.message() << "; " << histories.message();
      return 0;
    }
  }
  return units_count * static_cast<std::size_t>(steps);
}

TEST(Controller, DecidesAsTheNaiveImplementationOverMillionsOfUnitSteps) {
  // Sanitizers make it several times slower, and look at the same code after a tenth of it.
#if defined(__SANITIZE_ADDRESS__)
  constexpr std::size_t kUnitSteps = 2'000'000;
#else
  constexpr std::size_t kUnitSteps = 20'000'000;
#endif
  std::size_t compared = 0;
  for (std::uint64_t seed = 0; compared < kUnitSteps; ++seed) {
    const std::size_t units = 1 + seed * 7 % 61;
    compared += compare(seed, units, seed % 10 == 0 ? 3000 : 400);
    ASSERT_FALSE(HasFailure());
  }
}

TEST(Controller, DecidesAsTheNaiveImplementationOverManyUnits) {
  for (std::uint64_t seed = 900; seed < 904; ++seed) ASSERT_GT(compare(seed, 1003, 300), 0u);
}

}  // namespace
}  // namespace gnmr
