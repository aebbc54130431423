// SPDX-License-Identifier: Apache-2.0
#include "gnmr/recipes/delayed_memory.h"

#include <gtest/gtest.h>

#include <vector>

#include "gnmr/core/error.h"

namespace gnmr::recipes {
namespace {

TEST(DelayedMemory, StatesGoThroughAnotherMemory) {
  const Recipe recipe = load_recipe("fp8-delayed");
  DelayedMemory memory(recipe);
  for (const float amax : {1.0f, 7.0f, 3.0f}) {
    memory.begin_step();
    memory.note(Operand::input, amax);
    memory.note(Operand::output_gradient, 1e-3f * amax);
    memory.end_step();
  }
  const std::vector<formats::DelayedState> states = memory.states();
  ASSERT_EQ(states.size(), 6u);
  std::size_t next = 0;
  for_delayed(recipe, [&](std::size_t product, std::size_t place, const CastRule&) {
    const formats::DelayedState& state = states[next++];
    EXPECT_EQ(state.observations > 0 ? state.scale : 0, memory.scale(static_cast<Product>(product), place));
  });
  DelayedMemory other(recipe);
  other.set_states(states);
  EXPECT_EQ(other.save(), memory.save());
  EXPECT_THROW(other.set_states(std::span(states).first(5)), Error);
  EXPECT_EQ(other.save(), memory.save());
}

TEST(DelayedMemory, WithoutDelayedScalingThereIsNoState) {
  DelayedMemory memory(load_recipe("fp8-rowwise"));
  EXPECT_TRUE(memory.states().empty());
  memory.set_states({});
  EXPECT_EQ(memory.save(), "[]");
}

}  // namespace
}  // namespace gnmr::recipes
