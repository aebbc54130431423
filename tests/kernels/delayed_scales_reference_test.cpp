// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/delayed_scales_reference.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/random_run.h"
#include "gnmr/core/error.h"
#include "gnmr/kernels/delayed_rings.h"

namespace gnmr::kernels {
namespace {

using formats::AmaxChoice;
using formats::DelayedState;
using formats::Format;

bool same(const DelayedState& a, const DelayedState& b) {
  return a.amax_history == b.amax_history && a.observations == b.observations &&
         std::bit_cast<std::uint32_t>(a.scale) == std::bit_cast<std::uint32_t>(b.scale);
}

TEST(DelayedScales, AreFirstThoseOfTheTensor) {
  const std::vector<DelayedTensor> tensors{{.rule = {.format = Format::e4m3}, .amax = 1},
                                           {.rule = {.format = Format::e5m2}, .amax = 0},
                                           {.rule = {.format = Format::e4m3}, .amax = 2}};
  std::vector<DelayedState> states(3);
  std::vector<float> scales(3, 1.0f);
  reference_first_scales(tensors, states, std::vector<float>{57344, 896, -1}, scales);
  EXPECT_EQ(scales, (std::vector<float>{2, 1, 1}));
  EXPECT_EQ(states[0].scale, 1);
  reference_observe(tensors, std::vector<float>{-1, 448 * 3, 0}, states, scales);
  EXPECT_EQ(scales, (std::vector<float>{3, 1, 1}));
  EXPECT_EQ(states[1].observations, 0u);
  EXPECT_EQ(states[2].observations, 1u);
  reference_first_scales(tensors, states, std::vector<float>{57344 * 5, 448 * 5, 448 * 5}, scales);
  EXPECT_EQ(scales, (std::vector<float>{3, 5, 1}));
}

TEST(DelayedScales, LeaveOutErrorsThatANewScaleAnswers) {
  const formats::DelayedScaling rule{.format = Format::e4m3, .history_length = 4, .update_interval = 100};
  const std::vector<DelayedTensor> tensors{{.rule = rule, .amax = 0, .totals = 2},
                                           {.rule = rule, .amax = 1, .totals = 0},
                                           {.rule = rule, .amax = 2, .totals = 1},
                                           {.rule = rule, .amax = 3, .totals = 1}};
  const formats::Refresh refresh{.factor = 1.25f};
  std::vector<DelayedState> states(4);
  std::vector<float> scales(4, 1.0f);
  reference_observe(tensors, std::vector<float>{448, 448, 448, 448}, states, scales, refresh);
  const auto measured = [&](const std::vector<float>& amaxes, const formats::Refresh& with) {
    std::vector<ErrorTotals> totals(3, ErrorTotals{0.5, 8, 1});
    reference_leave_out_answered(tensors, amaxes, states, with, totals);
    std::vector<bool> found;
    for (const ErrorTotals& one : totals) found.push_back(one.measured > 0);
    return found;
  };
  using Found = std::vector<bool>;
  EXPECT_EQ(measured({448 * 1.2f, 448, 100, -1}, refresh), (Found{true, true, true}));
  EXPECT_EQ(measured({448 * 2, 448, 448, 448}, refresh), (Found{true, true, false}));
  EXPECT_EQ(measured({448, 448 * 2, 448, 448 * 2}, refresh), (Found{false, false, true}));
  EXPECT_EQ(measured({448, 448 * 2, 448, 448 * 2}, {}), (Found{true, true, true}));
  EXPECT_EQ(measured({-1, -1, -1, -1}, refresh), (Found{true, true, true}));
}

TEST(DelayedRings, KeepStatesAsTheyWere) {
  gnmr::testing::Random random(41);
  std::vector<DelayedTensor> tensors;
  std::vector<DelayedState> states;
  for (std::uint32_t length = 1; length < 20; ++length) {
    for (std::uint32_t size = 0; size <= length; ++size) {
      tensors.push_back({.rule = {.history_length = length}});
      DelayedState state{.amax_history = {}, .observations = random.below(1000), .scale = 0.5f};
      for (std::uint32_t i = 0; i < size; ++i) state.amax_history.push_back(static_cast<float>(random.uniform()));
      states.push_back(state);
    }
  }
  const std::vector<RingRule> rules = ring_rules(tensors);
  Rings rings = rings_of(rules, states);
  const std::vector<DelayedState> back = states_of(rules, rings);
  ASSERT_EQ(back.size(), states.size());
  for (std::size_t i = 0; i < states.size(); ++i) EXPECT_TRUE(same(back[i], states[i])) << i;
  // A full ring that was turned.
  rings.states.back().next = 7;
  const std::vector<float> turned = states_of(rules, rings).back().amax_history;
  const std::vector<float>& history = states.back().amax_history;
  for (std::size_t i = 0; i < 19; ++i) EXPECT_EQ(turned[i], history[(7 + i) % 19]);
}

TEST(DelayedRings, TakeTheNewestOfAHistoryThatIsTooLong) {
  const std::vector<DelayedTensor> tensors{{.rule = {.history_length = 2}}};
  const std::vector<RingRule> rules = ring_rules(tensors);
  const DelayedState state{.amax_history = {1, 2, 3}, .observations = 3, .scale = 1};
  EXPECT_EQ(states_of(rules, rings_of(rules, {&state, 1}))[0].amax_history, (std::vector<float>{2, 3}));
}

TEST(DelayedRings, RefuseWhatCannotBe) {
  const std::vector<DelayedTensor> tensors(1);
  const std::vector<RingRule> rules = ring_rules(tensors);
  EXPECT_THROW(rings_of(rules, {}), Error);
  for (const float odd : {-1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    const DelayedState history{.amax_history = {odd}, .observations = 1, .scale = 1};
    EXPECT_THROW(rings_of(rules, {&history, 1}), Error);
    const DelayedState scale{.amax_history = {}, .observations = 1, .scale = odd};
    EXPECT_THROW(rings_of(rules, {&scale, 1}), Error);
  }
  const DelayedTensor no_history{.rule = {.history_length = 0}};
  EXPECT_THROW(check_delayed({&no_history, 1}), Error);
  const DelayedTensor no_interval{.rule = {.update_interval = 0}};
  EXPECT_THROW(check_delayed({&no_interval, 1}), Error);
}

}  // namespace
}  // namespace gnmr::kernels
