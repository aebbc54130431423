// SPDX-License-Identifier: Apache-2.0
// The judge against the naive implementation: the same hearings, rulings, decisions and memories, bit for bit.
#include "gnmr/core/judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/naive_judge.h"
#include "core/random_errors.h"
#include "core/random_run.h"
#include "core/to_naive.h"
#include "gnmr/core/error.h"

namespace gnmr {
namespace {

using testing::NormArrays;
using testing::Random;
using testing::RandomErrors;
using testing::RandomRun;
using testing::same_bits;
using testing::to_naive;
using testing::to_sizes;

bool same_numbers(std::span<const double> ours, const std::vector<double>& theirs) {
  return std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(), same_bits);
}

bool same_hearing(const Hearing& ours, const naive::Hearing& theirs) {
  return to_string(ours.action) == theirs.action && ours.alarmed == theirs.alarmed &&
         ours.dismissed == theirs.dismissed && ours.spent == theirs.spent &&
         to_sizes(ours.standing_out) == theirs.told && same_numbers(ours.clip, theirs.clip);
}

bool same_ruling(const Ruling& ours, const naive::Ruling& theirs) {
  return to_string(ours.verdict) == theirs.verdict && to_string(ours.action) == theirs.action &&
         same_numbers(ours.clip, theirs.clip) && testing::same_decision(ours.decision, theirs.decision) &&
         to_sizes(ours.units) == theirs.told && same_numbers(ours.errors, theirs.errors) &&
         same_numbers(ours.excesses, theirs.excesses) &&
         std::equal(ours.places.begin(), ours.places.end(), theirs.places.begin(), theirs.places.end());
}

bool same_memory(const Judge& judge, const naive::Judge& expected) {
  const JudgeState state = judge.save();
  bool same = state.reruns_ago.size() == static_cast<std::size_t>(expected.reruns());
  for (std::size_t i = 0; i < state.errors.size(); ++i) {
    const std::size_t unit = i / state.places;
    const std::size_t place = i % state.places;
    same = same && state.errors[i].samples == expected.k(unit, place) &&
           same_bits(state.errors[i].mean_sum, expected.m(unit, place));
  }
  for (std::size_t i = 0; i < state.controller.units.size(); ++i) {
    const UnitState& unit = state.controller.units[i];
    same = same && unit.samples == expected.controller().k(i) && same_bits(unit.mean_sum, expected.controller().m(i)) &&
           same_bits(unit.rise_change_sum, expected.controller().q(i)) &&
           unit.steps_left == expected.controller().steps_left(i) &&
           unit.zero_muted == expected.controller().zeros_ignored(i);
  }
  return same;
}

/// One random run of both.
class Comparison {
 public:
  Comparison(std::uint64_t seed, std::size_t unit_count)
      : random_(seed), units_(testing::random_units(random_, unit_count)), options_(testing::random_options(random_)) {
    settings_.places = static_cast<std::uint32_t>(1 + random_.below(4));
    settings_.can_rerun = random_.chance(0.8);
    std::vector<double> expected(settings_.places);
    for (double& error : expected) error = random_.pick({0.0, 0.01, 0.02, 1e-9, 1e300});
    if (random_.chance(0.5)) settings_.expected = expected;
    try {
      theirs_.emplace(to_naive(units_), to_naive(options_),
                      settings_.expected.empty() ? std::vector<double>(settings_.places, 0.0) : expected,
                      settings_.can_rerun);
    } catch (const std::invalid_argument&) {
      EXPECT_THROW(Judge(units_, options_, settings_), Error) << "seed " << seed;
    }
  }

  /// Whether the options allow a run at all.
  bool possible() const { return theirs_.has_value(); }

  /// What happened, how often.
  const std::map<std::string, int>& counts() const { return counts_; }

  /// The first step that differs; -1: none.
  int run(int steps) {
    ours_.emplace(units_, options_, settings_);
    RandomRun norms(random_, units_.size());
    RandomErrors errors(random_, units_.size(), settings_.places);
    for (int step = 0; step < steps; ++step) {
      if (random_.chance(0.05)) leave_no_trace(step, norms, errors);
      if (random_.chance(0.02)) resume();
      if (!take(step, norms, errors)) return step;
      if ((step % 37 == 0 || step + 1 == steps) && !same_memory(*ours_, *theirs_)) return step;
    }
    return -1;
  }

 private:
  /// Counts, for each measured error, what its limit is made of.
  void count_limits(const std::vector<double>& errors, const std::string& source) {
    const std::size_t places = settings_.places;
    for (std::size_t i = 0; i < errors.size(); ++i) {
      if (std::isnan(errors[i])) continue;
      std::string name = source;
      if (theirs_->k(i / places, i % places) >= options_.error_warmup) {
        name += ", own";
      } else {
        int finite = 0;
        for (std::size_t j = i % places; j < errors.size(); j += places) finite += std::isfinite(errors[j]) ? 1 : 0;
        name += finite >= 5 ? ", median" : ", no median";
      }
      const bool known = !settings_.expected.empty() && settings_.expected[i % places] > 0;
      name += known ? ", x" : ", no x";
      name += options_.error_ceiling > 0 ? ", ceiling" : ", no ceiling";
      ++counts_[name];
    }
  }

  bool take(int step, RandomRun& run, RandomErrors& errors) {
    const auto norms = run.next();
    const NormArrays arrays(norms);
    const std::vector<double> patrol = errors.patrol();
    const bool may_rerun = random_.chance(0.95);
    count_limits(patrol, "patrol");
    const naive::Hearing expected = theirs_->hear(norms, patrol, may_rerun);
    const Hearing& hearing =
        ours_->hear({.step = step, .norms = arrays.norms, .sampled = arrays.sampled}, patrol, may_rerun);
    if (!same_hearing(hearing, expected)) return false;
    ++counts_[expected.action];
    counts_["dismissed"] += expected.dismissed ? 1 : 0;
    counts_["spent"] += expected.spent ? 1 : 0;
    counts_["clipped"] += expected.clip.empty() ? 0 : 1;
    const bool fails = random_.chance(0.1);
    const naive::Ruling theirs = expected.action == "trial" && !fails ? naive::Ruling{} : theirs_->decide();
    if (expected.action == "trial" && !fails) return conclude(step, random_.chance(0.5) ? run.next() : norms, errors);
    const Ruling& ours = ours_->decide();
    ++counts_["ends in " + theirs.action];
    return same_ruling(ours, theirs);
  }

  bool conclude(int step, const std::vector<std::optional<double>>& norms, RandomErrors& errors) {
    const NormArrays arrays(norms);
    const std::vector<double> measured = errors.trial();
    const Observation rerun{.step = step, .norms = arrays.norms, .sampled = arrays.sampled};
    if (random_.chance(0.1)) {  // an error leaves the step as it was heard
      const std::vector<double> bad(units_.size() * settings_.places, -1.0);
      EXPECT_THROW(ours_->conclude(rerun, bad), Error);
      EXPECT_THROW(ours_->conclude({.step = step, .norms = bad}, measured), Error);
      EXPECT_THROW(ours_->conclude({.step = step + 1, .norms = arrays.norms}, measured), Error);
    }
    count_limits(measured, "trial");
    const naive::Ruling theirs = theirs_->conclude(norms, measured);
    const Ruling& ours = ours_->conclude(rerun, measured);
    ++counts_[theirs.verdict];
    counts_["admitted by a trial"] += static_cast<int>(theirs.decision.admitted.size());
    return same_ruling(ours, theirs);
  }

  void leave_no_trace(int step, RandomRun& run, RandomErrors& errors) {
    const JudgeState before = ours_->save();
    const NormArrays other(run.next());
    ours_->hear({.step = step, .norms = other.norms, .sampled = other.sampled}, errors.patrol());
    EXPECT_EQ(ours_->save(), before);
    ours_->withdraw();
    std::vector<double> bad(units_.size() * settings_.places, 0.1);
    bad.back() = -1e-300;
    EXPECT_THROW(ours_->hear({.step = step, .norms = other.norms, .sampled = other.sampled}, bad), Error);
    EXPECT_EQ(ours_->save(), before);
  }

  void resume() {
    Judge fresh(units_, options_, settings_);
    EXPECT_TRUE(fresh.restore(ours_->save()).exact());
    EXPECT_EQ(fresh.save(), ours_->save());
    *ours_ = std::move(fresh);
  }

  Random random_;
  std::vector<Unit> units_;
  Options options_;
  JudgeSettings settings_;
  std::optional<naive::Judge> theirs_;
  std::optional<Judge> ours_;
  std::map<std::string, int> counts_;
};

TEST(Judge, JudgesAsTheNaiveImplementation) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr std::uint64_t kSeeds = 80;
  constexpr int kFewest = 1;
#else
  constexpr std::uint64_t kSeeds = 600;
  constexpr int kFewest = 30;
#endif
  std::map<std::string, int> counts;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    // Some with too few units for a median.
    Comparison comparison(seed, seed % 3 == 0 ? 1 + seed / 3 % 6 : 1 + seed * 7 % 41);
    if (!comparison.possible()) continue;
    ASSERT_EQ(comparison.run(seed % 20 == 0 ? 1500 : 250), -1) << "seed " << seed;
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    for (const auto& [name, count] : comparison.counts()) counts[name] += count;
  }
  // Everything that can happen did.
  for (const char* name : {"proceed", "hold", "replay", "trial", "dismissed", "spent", "clipped", "ends in proceed",
                           "ends in hold", "ends in replay", "numeric", "common", "unlocated", "admitted by a trial"}) {
    EXPECT_GE(counts[name], kFewest) << name;
  }
  for (const char* source : {"patrol", "trial"}) {
    for (const char* reference : {", own", ", median", ", no median"}) {
      for (const char* expected : {", x", ", no x"}) {
        for (const char* ceiling : {", ceiling", ", no ceiling"}) {
          const std::string name = std::string(source) + reference + expected + ceiling;
          EXPECT_GE(counts[name], kFewest) << name;
        }
      }
    }
  }
}

TEST(Judge, JudgesAsTheNaiveImplementationOverManyUnits) {
  for (std::uint64_t seed = 900; seed < 906; ++seed) {
    Comparison comparison(seed, 403);
    if (comparison.possible()) {
      ASSERT_EQ(comparison.run(200), -1) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace gnmr
