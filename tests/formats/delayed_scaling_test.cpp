// SPDX-License-Identifier: Apache-2.0
// The scale follows the history at the given interval, and a saved state goes on as the first would have.
#include "gnmr/formats/delayed_scaling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "formats/sample_values.h"

namespace gnmr::formats {
namespace {

using testing::Noise;

TEST(DelayedScaling, FollowsTheLargestOfTheLastValues) {
  for (const std::uint32_t length : {1u, 4u, 16u}) {
    for (const std::uint32_t interval : {1u, 3u, 100u}) {
      const DelayedScaling options{.history_length = length, .update_interval = interval};
      DelayedState state;
      std::vector<float> all;
      float expected = 1;
      Noise noise(length + interval);
      for (std::uint32_t step = 0; step < 250; ++step) {
        all.push_back(std::fabs(noise.normal()));
        observe_amax(options, all.back(), state);
        if (step % interval == 0) {
          const std::size_t kept = std::min<std::size_t>(length, all.size());
          expected = *std::max_element(all.end() - static_cast<std::ptrdiff_t>(kept), all.end()) / 448.0f;
        }
        ASSERT_EQ(state.scale, expected) << step;
        ASSERT_LE(state.amax_history.size(), length);
      }
      EXPECT_EQ(state.observations, 250u);
    }
  }
}

TEST(DelayedScaling, TheNewestMayDecideAndAMarginAddsRoom) {
  const DelayedScaling options{.format = Format::e5m2, .choice = AmaxChoice::newest, .margin = 2};
  DelayedState state;
  observe_amax(options, 100, state);
  observe_amax(options, 10, state);
  EXPECT_EQ(state.scale, 10 / 57344.0f * 4);
}

TEST(DelayedScaling, ZerosAndWhatIsNotFiniteLeaveTheScale) {
  DelayedState state;
  observe_amax({}, 0, state);
  EXPECT_EQ(state.scale, 1);
  observe_amax({}, 2, state);
  const float scale = state.scale;
  observe_amax({}, std::numeric_limits<float>::quiet_NaN(), state);
  observe_amax({}, std::numeric_limits<float>::infinity(), state);
  EXPECT_EQ(state.scale, scale);
  EXPECT_EQ(state.amax_history, (std::vector<float>{0, 2}));
  EXPECT_EQ(state.observations, 4u);
  for (int i = 0; i < 40; ++i) observe_amax({}, 0, state);
  EXPECT_EQ(state.scale, scale);
}

TEST(DelayedScaling, TheScaleStaysAUsableNumber) {
  DelayedState state;
  observe_amax({.margin = 200}, 3e38f, state);
  EXPECT_TRUE(std::isfinite(state.scale));
  state = {};
  observe_amax({.margin = -200}, 1e-45f, state);
  EXPECT_GE(state.scale, 0x1p-126f);
}

TEST(DelayedScaling, ASavedStateGoesOn) {
  const DelayedScaling options{.history_length = 5, .update_interval = 4};
  DelayedState first, second;
  Noise noise(3);
  for (int step = 0; step < 60; ++step) {
    const float amax = std::fabs(noise.normal());
    observe_amax(options, amax, first);
    observe_amax(options, amax, second);
    second =
        DelayedState{.amax_history = second.amax_history, .observations = second.observations, .scale = second.scale};
    ASSERT_EQ(first.scale, second.scale);
  }
}

TEST(DelayedScaling, WhatCannotBeIsRefused) {
  DelayedState state;
  EXPECT_THROW(observe_amax({.history_length = 0}, 1, state), std::invalid_argument);
  EXPECT_THROW(observe_amax({.update_interval = 0}, 1, state), std::invalid_argument);
  EXPECT_THROW(observe_amax({}, -1, state), std::invalid_argument);
  EXPECT_EQ(state.observations, 0u);
}

TEST(Refresh, RenewsAScaleThatNoLongerFitsByItsOwnRule) {
  const DelayedScaling options{.history_length = 2, .update_interval = 100};
  const Refresh refresh{.factor = 1.25F, .burst = 1, .gap = 10};
  const auto scale_of = [](float amax) { return amax / 448.0F; };
  DelayedState state;
  const auto observe = [&](float amax, int times) {
    for (int i = 0; i < times; ++i) observe_amax(options, amax, state, refresh);
  };
  observe(8, 5);
  EXPECT_EQ(state.scale, scale_of(8));
  observe(10, 1);
  EXPECT_EQ(state.scale, scale_of(8)) << "1.25 times as large is no more than that";
  observe(10.1F, 1);
  EXPECT_EQ(state.scale, scale_of(10.1F));
  EXPECT_EQ(state.refreshes, 1U);
  observe(40, 9);
  EXPECT_EQ(state.scale, scale_of(10.1F)) << "ten observations from one refresh to the next";
  observe(30, 1);
  EXPECT_EQ(state.scale, scale_of(40)) << "the largest of two";
  observe(20, 20);
  EXPECT_EQ(state.scale, scale_of(40)) << "half as large is not less than half";
  observe(19, 2);
  EXPECT_EQ(state.scale, scale_of(19));
  EXPECT_EQ(state.refreshes, 3U);
  observe(std::numeric_limits<float>::infinity(), 30);
  EXPECT_EQ(state.refreshes, 3U);
}

/// The rate limit by its definition: whether one more renewal now would leave, from each earlier one on, no more than
/// `burst` and one for each `gap` observations since.
bool is_within_rate(const std::vector<std::uint64_t>& renewed_at, std::uint64_t now, const Refresh& refresh) {
  for (std::size_t first = 0; first < renewed_at.size(); ++first) {
    const std::uint64_t count = renewed_at.size() - first + 1;
    if (count > refresh.burst + (now - renewed_at[first]) / refresh.gap) return false;
  }
  return true;
}

TEST(Refresh, ComesInABurstAndThenOneByOne) {
  Noise noise(21);
  for (const auto& [burst, gap] : {std::pair{1U, 10U}, {4U, 10U}, {3U, 1U}, {2U, 7U}}) {
    for (const std::uint32_t interval : {1U, 7U, 1'000'000U}) {
      const DelayedScaling options{.history_length = 1, .update_interval = interval};
      const Refresh refresh{.factor = 1.25F, .burst = burst, .gap = gap};
      DelayedState state;
      std::vector<std::uint64_t> renewed_at;
      std::uint64_t denied = 0;
      for (std::uint64_t now = 0; now < 1500; ++now) {
        // Calm stretches, in which the debt is paid back, and wild ones.
        const bool wild = now == 0 || (now / 60) % 3 != 0;
        const float amax = wild ? static_cast<float>(std::exp(noise.normal())) : state.amax_history.back();
        const float fresh = amax / 448;
        const bool misfits = now > 0 && (fresh > 1.25F * state.scale || fresh < 0.5F * state.scale);
        const bool expected = misfits && is_within_rate(renewed_at, now, refresh);
        const bool is_due = now % interval == 0;
        const float scale = expected || is_due ? fresh : state.scale;
        const std::uint64_t refreshes = state.refreshes + (expected && !is_due ? 1 : 0);
        ASSERT_EQ(renewal_answers(options, amax, state, refresh), expected) << burst << " " << gap << " " << now;
        observe_amax(options, amax, state, refresh);
        ASSERT_EQ(state.scale, scale) << burst << " " << gap << " " << interval << " " << now;
        ASSERT_EQ(state.refreshes, refreshes);
        ASSERT_LE(state.refresh_debt, burst * gap);
        if (expected) renewed_at.push_back(now);
        denied += misfits && !expected ? 1 : 0;
      }
      EXPECT_GT(renewed_at.size(), 100U / gap);
      EXPECT_EQ(denied > 0, gap > 1);
      // As documented: of n observations at most burst + floor((n - 1) / gap).
      for (std::size_t last = burst; last < renewed_at.size(); ++last) {
        EXPECT_GE(renewed_at[last] - renewed_at[last - burst], gap);
      }
    }
  }
}

TEST(Refresh, ADebtOfAnEarlierVersionIsThatOfItsLastOne) {
  EXPECT_EQ(debt_of_last_refresh(50, 0), 0U) << "there was none";
  EXPECT_EQ(debt_of_last_refresh(50, 50), 10U);
  EXPECT_EQ(debt_of_last_refresh(50, 43), 3U);
  EXPECT_EQ(debt_of_last_refresh(50, 40), 0U);
  EXPECT_EQ(debt_of_last_refresh(50, 2), 0U);
}

TEST(Refresh, IsKnownAhead) {
  Noise noise(8);
  std::uint64_t found = 0;
  for (const std::uint32_t interval : {1U, 4U, 100U}) {
    const DelayedScaling options{.history_length = 3, .update_interval = interval};
    for (const float factor : {0.0F, 1.25F, 4.0F}) {
      const Refresh refresh{.factor = factor};
      DelayedState state;
      for (int step = 0; step < 400; ++step) {
        const auto amax = static_cast<float>(std::exp(noise.normal()));
        const DelayedState before = state;
        const bool expected = renewal_answers(options, amax, state, refresh);
        observe_amax(options, amax, state, refresh);
        ASSERT_EQ(state.refresh_debt > before.refresh_debt, expected) << interval << " " << factor << " " << step;
        ASSERT_EQ(state.refreshes != before.refreshes, expected && step % static_cast<int>(interval) != 0);
        ASSERT_TRUE(!expected || state.scale != before.scale);
        found += expected ? 1 : 0;
      }
      EXPECT_FALSE(renewal_answers(options, -1, state, refresh)) << "nothing was seen";
    }
  }
  EXPECT_GT(found, 50U);
}

TEST(Refresh, ChangesNothingWhereAScaleIsRenewedInEachStep) {
  DelayedState plain;
  DelayedState refreshed;
  Noise noise(5);
  for (int step = 0; step < 300; ++step) {
    const auto amax = static_cast<float>(std::exp(3 * noise.normal()));
    observe_amax({}, amax, plain);
    observe_amax({}, amax, refreshed, {.factor = 1.25F});
    ASSERT_EQ(refreshed.scale, plain.scale);
  }
  EXPECT_EQ(refreshed.refreshes, 0U);
}

}  // namespace
}  // namespace gnmr::formats
