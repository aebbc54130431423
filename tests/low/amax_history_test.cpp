// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/amax_history.h"

#include <gtest/gtest.h>

#include <vector>

namespace gnmr::low {
namespace {

using recipes::Operand;
using recipes::Product;

TEST(AmaxHistory, StatesGoThroughAnotherHistory) {
  const recipes::Recipe recipe = recipes::load_recipe("fp8-delayed");
  AmaxHistory history;
  for (const float amax : {1.0f, 7.0f, 3.0f}) {
    history.begin_step();
    history.note(Operand::input, amax);
    history.note(Operand::input, amax / 2);  // a smaller one of another micro-batch
    history.note(Operand::output_gradient, 1e-3f * amax);
    history.end_step(recipe);
  }
  EXPECT_EQ(history.scale(Product::forward, 0), 7.0f / 448);
  EXPECT_FALSE(history.scale(Product::forward, 1)) << "no weight was observed";
  const std::vector<formats::DelayedState> states = history.states(recipe);
  ASSERT_EQ(states.size(), 6u);
  EXPECT_EQ(states[0].amax_history, (std::vector<float>{1, 7, 3}));
  AmaxHistory other;
  other.set_states(recipe, states);
  for (const Product product : {Product::forward, Product::input_gradient, Product::weight_gradient}) {
    for (const std::size_t place : {std::size_t{0}, std::size_t{1}}) {
      EXPECT_EQ(other.scale(product, place), history.scale(product, place));
    }
  }
}

TEST(AmaxHistory, AStepThatBeginsAgainCountsOnce) {
  const recipes::Recipe recipe = recipes::load_recipe("fp8-delayed");
  AmaxHistory history;
  history.begin_step();
  history.note(Operand::input, 100);
  history.begin_step();
  history.note(Operand::input, 2);
  history.end_step(recipe);
  EXPECT_EQ(history.states(recipe)[0].amax_history, std::vector<float>{2});
}

TEST(AmaxHistory, WithoutDelayedScalingThereIsNoState) {
  AmaxHistory history;
  history.begin_step();
  history.note(Operand::input, 2);
  history.end_step(recipes::load_recipe("fp8-rowwise"));
  EXPECT_TRUE(history.states(recipes::load_recipe("fp8-rowwise")).empty());
}

}  // namespace
}  // namespace gnmr::low
