// SPDX-License-Identifier: Apache-2.0
#include "gnmr/recipes/delayed_states.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/core/error.h"

namespace gnmr::recipes {
namespace {

std::vector<formats::DelayedState> different_states(std::size_t count) {
  std::vector<formats::DelayedState> states(count);
  for (std::size_t index = 0; index < count; ++index) {
    const float amax = 0.1f * static_cast<float>(index + 1);
    states[index] = {.amax_history = {amax, amax / 3}, .observations = 7 + index, .scale = amax / 448};
  }
  return states;
}

void expect_equal(const std::vector<formats::DelayedState>& left, const std::vector<formats::DelayedState>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t index = 0; index < left.size(); ++index) {
    EXPECT_EQ(left[index].amax_history, right[index].amax_history);
    EXPECT_EQ(left[index].observations, right[index].observations);
    EXPECT_EQ(left[index].scale, right[index].scale);
  }
}

TEST(DelayedStates, OneForEachDelayedOperandGemmByGemm) {
  std::vector<std::pair<std::size_t, std::size_t>> visited;
  const auto note = [&](std::size_t product, std::size_t place, const CastRule& rule) {
    EXPECT_EQ(rule.grouping, Grouping::delayed);
    visited.emplace_back(product, place);
  };
  for_delayed(load_recipe("fp8-delayed"), note);
  EXPECT_EQ(visited,
            (std::vector<std::pair<std::size_t, std::size_t>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}}));
  visited.clear();
  for_delayed(load_recipe("fp8-rowwise"), note);
  EXPECT_TRUE(visited.empty());
}

TEST(DelayedStates, TextKeepsEveryBit) {
  const std::vector<formats::DelayedState> states = different_states(6);
  expect_equal(parse_delayed_states(load_recipe("fp8-delayed"), delayed_states_text(states)), states);
  EXPECT_EQ(delayed_states_text({}), "[]");
  EXPECT_EQ(delayed_states_text(
                std::vector<formats::DelayedState>{{.amax_history = {0.1F, 448}, .observations = 7, .scale = 0.5F}}),
            R"([{"history":[0.10000000149011612,448.0],"observations":7,"scale":0.5}])");
  EXPECT_TRUE(parse_delayed_states(load_recipe("fp8-rowwise"), "[]").empty());
  std::vector<formats::DelayedState> refreshed = states;
  refreshed[2].observations = 50;
  refreshed[2].refreshes = 3;
  refreshed[2].refresh_debt = 17;
  const auto read = parse_delayed_states(load_recipe("fp8-delayed"), delayed_states_text(refreshed));
  EXPECT_EQ(read[2].refreshes, 3U);
  EXPECT_EQ(read[2].refresh_debt, 17U);
  EXPECT_EQ(read[1].refreshes, 0U);
  EXPECT_EQ(read[1].refresh_debt, 0U);
}

TEST(DelayedStates, OfEarlierVersionsHaveTheDebtOfTheirLastRefresh) {
  const Recipe recipe = parse_recipe(R"({"name": "one", "input": {"format": "e4m3", "scaling": "delayed"},
    "products": {"weight_gradient": {"input": null}}})");
  const auto debt_of = [&](const std::string& last) {
    return parse_delayed_states(
               recipe, R"([{"history":[1],"observations":50,"scale":1,"refreshes":3,"refreshed_at":)" + last + "}]")[0]
        .refresh_debt;
  };
  EXPECT_EQ(debt_of("50"), 10U);
  EXPECT_EQ(debt_of("44"), 4U);
  EXPECT_EQ(debt_of("40"), 0U);
  EXPECT_THROW(debt_of("51"), Error);
  EXPECT_EQ(debt_of(R"(50,"refresh_debt":40)"), 40U);
  EXPECT_THROW(debt_of(R"(50,"refresh_debt":41)"), Error);
}

TEST(DelayedStates, TextOfAnotherRecipeIsRefused) {
  const Recipe recipe = load_recipe("fp8-delayed");
  EXPECT_THROW(parse_delayed_states(recipe, delayed_states_text(different_states(5))), Error);
  EXPECT_THROW(parse_delayed_states(recipe, delayed_states_text(different_states(7))), Error);
  EXPECT_THROW(parse_delayed_states(load_recipe("fp8-rowwise"), delayed_states_text(different_states(6))), Error);
}

TEST(DelayedStates, ValuesThatNoLayerCanHaveWrittenAreRefused) {
  const Recipe recipe = load_recipe("fp8-delayed");
  const auto is_refused_with = [&recipe](const auto& change) {
    std::vector<formats::DelayedState> states = different_states(6);
    change(states[4]);
    try {
      parse_delayed_states(recipe, delayed_states_text(states));
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  using State = formats::DelayedState;
  EXPECT_FALSE(is_refused_with([](State&) {}));
  EXPECT_TRUE(is_refused_with([](State& state) { state.scale = 0; }));
  EXPECT_TRUE(is_refused_with([](State& state) { state.scale = std::numeric_limits<float>::infinity(); }));
  EXPECT_TRUE(is_refused_with([](State& state) { state.amax_history[0] = -1; }));
  EXPECT_TRUE(is_refused_with([](State& state) { state.amax_history.assign(4096, 1.0f); }));
  for (const char* text : {"", "{}", "[1,2,3,4,5,6]", "[{},{},{},{},{},{}]", "not JSON"}) {
    EXPECT_THROW(parse_delayed_states(recipe, text), Error) << text;
  }
  try {
    parse_delayed_states(recipe, R"([{"history":[1e39],"observations":1,"scale":1}])");
    ADD_FAILURE() << "no float is so large";
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("[delayed scaling]: `[0].history`: expected at most "))
        << error.what();
  }
}

}  // namespace
}  // namespace gnmr::recipes
