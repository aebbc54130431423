// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/tune.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "gnmr/core/controller.h"
#include "gnmr/lab/detection_score.h"
#include "gnmr/lab/tune_choice.h"

namespace gnmr::lab {
namespace {

constexpr std::size_t kUnits = 6;

std::vector<Unit> some_units() {
  std::vector<Unit> units;
  for (std::size_t i = 0; i < kUnits; ++i) units.push_back({.name = "unit" + std::to_string(i)});
  return units;
}

/// A noisy run; in a fault a unit's norm and the error of its low path are several times what they were.
TuneBlock noisy_run(std::int64_t steps, const std::vector<std::pair<std::int64_t, std::size_t>>& faults) {
  std::mt19937 random(5);
  TuneBlock block;
  for (std::int64_t step = 0; step < steps; ++step) {
    block.steps.push_back(step);
    for (std::size_t unit = 0; unit < kUnits; ++unit) {
      const double noise = 0.9 + 0.2 * static_cast<double>(random()) / 4294967296.0;
      const bool faulty = std::any_of(faults.begin(), faults.end(), [&](const auto& fault) {
        return fault.second == unit && step >= fault.first && step < fault.first + 3;
      });
      block.norms.push_back(noise * (faulty ? 1.8 : 1.0));
      block.sampled.push_back(1);
      block.evidence.push_back(0.05 * noise * (faulty ? 10 : 1));
      block.faulty.push_back(faulty ? 1 : 0);
    }
  }
  return block;
}

const std::vector<std::pair<std::int64_t, std::size_t>> kFaults{{60, 1}, {90, 4}, {120, 0}, {150, 5}};

std::vector<TuneResult> replay_all(const TuneBlock& block, const Options& base, const TuneGridSettings& grid,
                                   const TunerSettings& settings) {
  Tuner tuner(some_units(), tune_grid(base, grid), settings);
  tuner.add(block);
  std::vector<TuneResult> results = tuner.results();
  mark_best(results, settings.truth);
  return results;
}

const TuneGridSettings kGrid{.budget = 1, .units = kUnits};

TEST(TuneGrid, IsSmallValidAndBeginsWithTheGivenOptions) {
  for (const char* const preset : {"default", "paper"}) {
    for (const bool evidence : {false, true}) {
      const Options base = Options::preset(preset);
      const auto grid = tune_grid(base, {.budget = 1, .units = 40, .evidence = evidence, .expected_error = 0.05});
      EXPECT_GT(grid.size(), 50U);
      EXPECT_LE(grid.size(), 200U);
      EXPECT_EQ(grid.front().changes, 0);
      std::size_t given = 0;
      for (std::size_t i = 0; i < grid.size(); ++i) {
        EXPECT_NO_THROW(validate(grid[i].options));
        given += grid[i].changes == 0 ? 1U : 0U;
        for (std::size_t j = 0; j < i; ++j) ASSERT_FALSE(grid[i].options == grid[j].options) << i << " and " << j;
      }
      EXPECT_EQ(given, evidence ? 2U : 1U);
      Options same = grid.front().options;
      same.selector = base.selector;
      EXPECT_EQ(same, base);
    }
  }
}

TEST(TuneGrid, ManyUnitsMakeFewerReplays) {
  EXPECT_LT(tune_grid({}, {.budget = 445, .units = 44544}).size(), tune_grid({}, {.budget = 10, .units = 1000}).size());
}

TEST(TuneGrid, KeepsWithinRanges) {
  Options base;
  base.max_o = 0;
  base.lock_steps = 2;
  base.lag = 1;
  base.tau = 1;
  base.error_factor = 1;
  base.error_ceiling = 0;
  const auto grid = tune_grid(base, {.budget = 0, .units = 1, .evidence = true, .expected_error = 0.05});
  for (const TuneCandidate& candidate : grid) {
    EXPECT_NO_THROW(validate(candidate.options));
    EXPECT_EQ(candidate.options.max_o, 0);
  }
}

TEST(TuneGrid, TheCeilingIsSweptWhereTheFormatIsKnownAndTheFloorNever) {
  for (const double expected_error : {0.0, 0.05}) {
    std::set<double> ceilings;
    for (const TuneCandidate& candidate :
         tune_grid({}, {.budget = 1, .units = 40, .evidence = true, .expected_error = expected_error})) {
      EXPECT_EQ(candidate.options.error_floor, Options{}.error_floor);
      if (candidate.by_evidence()) ceilings.insert(candidate.options.error_ceiling);
    }
    EXPECT_EQ(ceilings, (expected_error > 0 ? std::set<double>{3, 4, 6} : std::set<double>{4}));
  }
}

TEST(Tuner, AgreesWithAControllerAndItsScore) {
  const TuneBlock block = noisy_run(200, kFaults);
  const std::vector<TuneResult> results = replay_all(block, {}, kGrid, {.truth = true});
  for (const std::size_t index : {std::size_t{0}, std::size_t{7}, results.size() - 1}) {
    Controller controller(some_units(), results[index].candidate.options, norms_only());
    DetectionScore detection(kUnits);
    std::uint64_t risks = 0, admissions = 0, denials = 0, recovered = 0;
    for (std::size_t row = 0; row < block.steps.size(); ++row) {
      const std::span norms = std::span(block.norms).subspan(row * kUnits, kUnits);
      controller.begin(block.steps[row]);
      const Decision& decision = controller.report({.step = block.steps[row], .norms = norms}).decision;
      for (UnitIndex unit = 0; unit < kUnits; ++unit)
        risks += controller.signals(unit).risk != RiskKind::none ? 1U : 0U;
      admissions += decision.admitted.size();
      denials += decision.denied.size();
      recovered += decision.recovered.size();
      detection.add(std::span(block.faulty).subspan(row * kUnits, kUnits), decision);
    }
    const TuneScore& score = results[index].score;
    EXPECT_EQ(score.steps, 200U);
    EXPECT_EQ(score.looked_at, 200 * kUnits);
    EXPECT_EQ(score.risks, risks);
    EXPECT_EQ(score.admissions, admissions);
    EXPECT_EQ(score.denials, denials);
    EXPECT_DOUBLE_EQ(score.mean_share, static_cast<double>(recovered) / (200.0 * kUnits));
    EXPECT_EQ(score.faults, 4U);
    EXPECT_EQ(score.recall, detection.recall());
    if (admissions > 0) {
      EXPECT_EQ(score.precision, detection.precision());
    }
  }
}

TEST(Tuner, BlocksAndThreadsMakeNoDifference) {
  const TuneBlock whole = noisy_run(150, kFaults);
  const TuneGridSettings grid{.budget = 1, .units = kUnits, .evidence = true, .expected_error = 0.05};
  const std::vector<TuneResult> once =
      replay_all(whole, {}, grid, {.truth = true, .expected_error = 0.05, .threads = 1});
  Tuner tuner(some_units(), tune_grid({}, grid), {.truth = true, .expected_error = 0.05, .threads = 3});
  for (std::size_t row = 0; row < whole.steps.size(); row += 37) {
    const std::size_t rows = std::min<std::size_t>(37, whole.steps.size() - row);
    const auto part = [&](const auto& values, std::size_t width) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * width);
      return std::decay_t<decltype(values)>(begin, begin + static_cast<std::ptrdiff_t>(rows * width));
    };
    tuner.add({.steps = part(whole.steps, 1),
               .norms = part(whole.norms, kUnits),
               .sampled = part(whole.sampled, kUnits),
               .evidence = part(whole.evidence, kUnits),
               .faulty = part(whole.faulty, kUnits)});
  }
  const std::vector<TuneResult> parts = tuner.results();
  ASSERT_EQ(parts.size(), once.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].score.risks, once[i].score.risks);
    EXPECT_EQ(parts[i].score.admissions, once[i].score.admissions);
    EXPECT_EQ(parts[i].score.f_score, once[i].score.f_score);
    EXPECT_EQ(parts[i].score.calm_rate, once[i].score.calm_rate);
    EXPECT_EQ(parts[i].score.bluntness(), once[i].score.bluntness());
  }
}

TEST(Tuner, ErrorsFindWhatNormsHardlyShow) {
  const TuneGridSettings grid{.budget = 1, .units = kUnits, .evidence = true, .expected_error = 0};
  const std::vector<TuneResult> results = replay_all(noisy_run(200, kFaults), {}, grid, {.truth = true});
  const TuneChoice choice = choose_options(results, {}, {.truth = true});
  ASSERT_TRUE(choice.evidence && choice.norms);
  EXPECT_EQ(results[choice.evidence->result].score.f_score, 1.0);
  EXPECT_EQ(results[choice.evidence->result].candidate.changes, 0) << "ties: the fewest changes";
  EXPECT_NEAR(results[choice.evidence->result].score.sees_error, 0.2, 0.02);
  EXPECT_EQ(choice.options.selector, Selector::automatic) << "the selector is not chosen";
}

TEST(TuneChoice, WithTruthTheHighestScore) {
  const std::vector<TuneResult> results = replay_all(noisy_run(200, kFaults), {}, kGrid, {.truth = true});
  const TuneChoice choice = choose_options(results, {}, {.truth = true});
  ASSERT_TRUE(choice.norms.has_value());
  EXPECT_FALSE(choice.evidence.has_value());
  const TuneScore& chosen = results[choice.norms->result].score;
  for (const TuneResult& result : results) {
    EXPECT_LE(result.score.f_score, chosen.f_score);
    if (result.score.f_score == chosen.f_score) {
      EXPECT_GE(result.score.admissions, chosen.admissions);
    }
  }
  EXPECT_EQ(choice.options.tau, results[choice.norms->result].candidate.options.tau);
  EXPECT_NE(choice.norms->why.find("highest F-score"), std::string::npos);
}

TEST(TuneChoice, OnAHealthyRunTheMostSensitiveWithinTheRate) {
  const std::vector<TuneResult> results = replay_all(noisy_run(400, {}), {}, kGrid, {});
  const TuneChoice choice = choose_options(results, {}, {.healthy = true, .rate = 0.5});
  const TuneResult& chosen = results[choice.norms->result];
  EXPECT_LE(chosen.score.own_rate, 0.5);
  EXPECT_EQ(chosen.candidate.options.lock_steps, Options{}.lock_steps);
  EXPECT_EQ(chosen.candidate.options.max_o, Options{}.max_o);
  for (const TuneResult& result : results) {
    if (result.score.own_rate <= 0.5) {
      EXPECT_GE(result.score.bluntness(), chosen.score.bluntness());
    }
  }
  EXPECT_LE(chosen.score.bluntness(), results[0].score.bluntness()) << "calmer than the default needs";
  // Truth that has no fault says the same.
  const std::vector<TuneResult> clean = replay_all(noisy_run(400, {}), {}, kGrid, {.truth = true});
  EXPECT_EQ(choose_options(clean, {}, {.truth = true}).norms->result, choice.norms->result);
}

TEST(TuneChoice, ARunOfUnknownHealthIsJudgedByItsCalmParts) {
  // One stretch is wild; the rest is as calm as can be.
  TuneBlock block = noisy_run(400, {});
  for (std::size_t row = 200; row < 215; ++row) {
    for (std::size_t unit = 0; unit < 3; ++unit) block.norms[row * kUnits + unit] *= row % 2 == 0 ? 6 : 1;
  }
  const std::vector<TuneResult> results = replay_all(block, {}, kGrid, {});
  EXPECT_GT(results[0].score.own_rate, 0.5);
  EXPECT_LT(results[0].score.calm_rate, 0.5);
  const TuneChoice calm = choose_options(results, {}, {});
  const TuneChoice healthy = choose_options(results, {}, {.healthy = true});
  EXPECT_LE(results[calm.norms->result].score.calm_rate, 0.5);
  EXPECT_NE(healthy.norms->why.find("none of"), std::string::npos) << healthy.norms->why;
}

TEST(TuneBest, NoOtherIsBetter) {
  std::vector<TuneResult> results(4);
  const auto set = [&](std::size_t i, double recall, double precision, double share) {
    results[i].score.recall = recall;
    results[i].score.precision = precision;
    results[i].score.mean_share = share;
    results[i].candidate.changes = static_cast<int>(i);
  };
  set(0, 0.5, 0.5, 0.1);
  set(1, 0.6, 0.5, 0.1);
  set(2, 0.4, std::nan(""), 0.05);
  set(3, 0.6, 0.5, 0.1);
  mark_best(results, true);
  EXPECT_FALSE(results[0].best);
  EXPECT_TRUE(results[1].best);
  EXPECT_TRUE(results[2].best);
  EXPECT_FALSE(results[3].best) << "equal, and changes more";
  results[3].candidate.options.selector = Selector::evidence;
  mark_best(results, true);
  EXPECT_TRUE(results[3].best) << "another selector";
}

}  // namespace
}  // namespace gnmr::lab
