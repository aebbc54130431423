// SPDX-License-Identifier: Apache-2.0
// Members of one layer against as many layers of their own: the same bits in everything that is made or measured.
#include "gnmr/low/members.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/low/linear.h"
#include "low/plain_front_end.h"

namespace gnmr::low {
namespace {

using testing::PlainFrontEnd;

constexpr std::int64_t kInputs = 144, kOutputs = 8;  // tiles of 128 and what is left of them
constexpr std::size_t kMembers = 5;

/// Rows in each step: none, one, more than a group of 128 beginning within one; in each step others.
const std::vector<std::vector<std::int32_t>> kRouting = {
    {7, 0, 1, 133, 20}, {0, 0, 130, 5, 0}, {1, 40, 0, 3, 2}, {0, 0, 0, 0, 0}, {12, 3, 131, 0, 1}};

std::vector<std::int32_t> offsets_of(const std::vector<std::int32_t>& rows) {
  std::vector<std::int32_t> offsets = {0};
  for (const std::int32_t count : rows) offsets.push_back(offsets.back() + count);
  return offsets;
}

/// Numbers by chance, of a size that differs from matrix to matrix.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed) {}

  Matrix matrix(const PlainFrontEnd& front_end, std::int64_t rows, std::int64_t columns) {
    const float size = 1.0f + 3.0f * std::abs(next());
    return front_end.made(rows, columns, [&](std::int64_t, std::int64_t) { return size * next(); });
  }

  bool coin() { return next() > 0; }

 private:
  float next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(static_cast<std::int32_t>(state_ >> 32)) * 0x1p-31f;
  }

  std::uint64_t state_;
};

/// A layer's operands in a step, by member.
struct Operands {
  std::vector<Matrix> inputs, weights, gradients;
};

Operands operands(const PlainFrontEnd& front_end, const std::vector<std::int32_t>& rows, std::uint64_t seed) {
  Numbers numbers(seed);
  Operands made;
  for (const std::int32_t count : rows) {
    made.inputs.push_back(numbers.matrix(front_end, count, kInputs));
    made.weights.push_back(numbers.matrix(front_end, kOutputs, kInputs));
    made.gradients.push_back(numbers.matrix(front_end, count, kOutputs));
  }
  return made;
}

/// Matrices one under the other.
Matrix stacked(const PlainFrontEnd& front_end, const std::vector<Matrix>& parts) {
  std::int64_t rows = 0;
  for (const Matrix& part : parts) rows += part.rows;
  const Matrix all = front_end.empty({}, Type::float32, rows, parts.front().columns);
  float* next = all.floats();
  for (const Matrix& part : parts) {
    std::copy_n(part.floats(), part.count(), next);
    next += part.count();
  }
  return all;
}

std::vector<LinearPaths> paths_of(const std::string& recipe, std::size_t count,
                                  const std::shared_ptr<const StepClock>& clock) {
  const auto loaded = std::make_shared<const Recipe>(recipes::load_recipe(recipe));
  std::vector<LinearPaths> paths(count);
  for (std::size_t member = 0; member < count; ++member) {
    paths[member].recipe = loaded;
    paths[member].clock = clock;
    paths[member].layer = static_cast<std::uint32_t>(10 + member);
    paths[member].low.fill(true);
  }
  return paths;
}

struct Results {
  Matrix output, input_gradient, weight_gradient;
};

/// Forward and backward; what is kept between goes through `Saved::parts`, as front ends keep it.
Results run(const FrontEnd& front_end, const Members& members, const Matrix& input, const Matrix& weight,
            const Matrix& gradient) {
  const ForwardResult made = forward(front_end, members, input, weight);
  const Saved saved = Saved::from_parts(members.layer().recipe.get(), made.saved.parts());
  const Gradients gradients = backward(front_end, members, saved, gradient, true, true);
  return {made.output, gradients.input, gradients.weight};
}

std::vector<std::uint32_t> bits(const Matrix& matrix, std::int64_t first, std::int64_t rows) {
  EXPECT_EQ(matrix.type, Type::float32);
  EXPECT_LE(first + rows, matrix.rows);
  std::vector<std::uint32_t> found;
  for (std::int64_t i = first; i < first + rows; ++i) {
    for (std::int64_t j = 0; j < matrix.columns; ++j) {
      found.push_back(std::bit_cast<std::uint32_t>(PlainFrontEnd::at(matrix, i, j)));
    }
  }
  return found;
}

std::vector<std::uint32_t> bits(const Matrix& matrix) { return bits(matrix, 0, matrix.rows); }

/// Everything that a step has left in a member, as numbers that can be compared.
std::vector<double> memory(const LinearPaths& paths) {
  std::vector<double> all(paths.amax.step_amax.begin(), paths.amax.step_amax.end());
  for (const formats::DelayedState& state : paths.amax.states(*paths.recipe)) {
    all.insert(all.end(), state.amax_history.begin(), state.amax_history.end());
    all.insert(all.end(), {static_cast<double>(state.observations), double{state.scale}});
  }
  const auto add = [&](const ErrorSums& sums) {
    all.insert(all.end(), {sums.difference, sums.reference, sums.measured ? 1.0 : 0.0});
  };
  for (const ProductMeasurement& measured : paths.measured) {
    all.insert(all.end(), {measured.squared_norm, measured.sampled ? 1.0 : 0.0});
    add(measured.error);
    for (const formats::Statistics& seen : measured.casts) {
      all.insert(all.end(), {static_cast<double>(seen.elements), static_cast<double>(seen.overflowed),
                             static_cast<double>(seen.flushed), seen.squared_error, seen.squared_values});
    }
  }
  add(paths.saved_error);
  return all;
}

/// What a step sets in the paths of a member.
using Setting = std::function<void(std::size_t step, std::size_t member, LinearPaths& paths)>;

void plain(std::size_t, std::size_t, LinearPaths&) {}

/// The paths of all GEMMs by chance, a function of step and member.
void mixed(std::size_t step, std::size_t member, LinearPaths& paths) {
  Numbers numbers(977 * step + 31 * member + 5);
  for (int skipped = 0; skipped < 8; ++skipped) numbers.coin();
  for (bool& low : paths.low) low = numbers.coin();
}

void measured(std::size_t, std::size_t, LinearPaths& paths) {
  paths.comparison = Comparison::projected;
  paths.measure_casts = true;
  paths.measure_products = true;
  paths.can_save_low = true;
}

void in_a_trial(std::size_t, std::size_t, LinearPaths& paths) {
  paths.low.fill(false);
  paths.comparison = Comparison::full;
}

/// Some members run high and are measured there, some are patrolled, some neither.
void in_recovery(std::size_t step, std::size_t member, LinearPaths& paths) {
  mixed(step, member, paths);
  constexpr std::array kKinds = {Comparison::none, Comparison::full, Comparison::projected};
  paths.comparison = kKinds[(step + member) % 3];
  paths.measure_casts = true;
}

void saved_in_8_bits(std::size_t step, std::size_t member, LinearPaths& paths) {
  in_recovery(step, member, paths);
  paths.can_save_low = true;
  paths.save_low = step % 2 == 0;
}

void weights_again(std::size_t step, std::size_t member, LinearPaths& paths) {
  if (step % 2 == 1) mixed(step, member, paths);
  paths.keep_low_weight = false;
}

/// Steps of one layer with members and of as many layers; in each all must be alike.
void compare_with_layers(const std::string& recipe, const Setting& setting) {
  const PlainFrontEnd front_end;
  const auto clock = std::make_shared<StepClock>(StepClock{.seed = 3});
  std::vector<LinearPaths> members = paths_of(recipe, kMembers, clock);
  std::vector<LinearPaths> layers = paths_of(recipe, kMembers, clock);
  for (std::size_t step = 0; step < kRouting.size(); ++step) {
    clock->step = static_cast<std::int64_t>(step);
    for (std::size_t member = 0; member < kMembers; ++member) {
      for (LinearPaths* const paths : {&members[member], &layers[member]}) {
        paths->begin_step();
        paths->low.fill(true);
        setting(step, member, *paths);
      }
    }
    const std::vector<Matrix> weights = operands(front_end, std::vector<std::int32_t>(kMembers, 1), 100 * step).weights;
    for (clock->micro_batch = 0; clock->micro_batch < 2; ++clock->micro_batch) {
      SCOPED_TRACE(recipe + ", step " + std::to_string(step) + ", micro-batch " + std::to_string(clock->micro_batch));
      const auto& rows = kRouting[(step + static_cast<std::size_t>(clock->micro_batch) * 3) % kRouting.size()];
      const std::vector<std::int32_t> offsets = offsets_of(rows);
      Operands given = operands(front_end, rows, 100 * step + static_cast<std::uint64_t>(clock->micro_batch));
      given.weights = weights;  // they change between steps only
      const Results found = run(front_end, Members(members, {offsets}), stacked(front_end, given.inputs),
                                stacked(front_end, given.weights), stacked(front_end, given.gradients));
      EXPECT_EQ(found.output.rows, offsets.back());
      EXPECT_EQ(found.input_gradient.rows, offsets.back());
      for (std::size_t member = 0; member < kMembers; ++member) {
        SCOPED_TRACE("member " + std::to_string(member));
        const auto own = bits(found.weight_gradient, static_cast<std::int64_t>(member) * kOutputs, kOutputs);
        if (rows[member] == 0) {
          EXPECT_EQ(own, std::vector<std::uint32_t>(kOutputs * kInputs, 0));
          continue;
        }
        const Results expected =
            run(front_end, layers[member], given.inputs[member], given.weights[member], given.gradients[member]);
        EXPECT_EQ(bits(found.output, offsets[member], rows[member]), bits(expected.output));
        EXPECT_EQ(bits(found.input_gradient, offsets[member], rows[member]), bits(expected.input_gradient));
        EXPECT_EQ(own, bits(expected.weight_gradient));
      }
    }
    for (std::size_t member = 0; member < kMembers; ++member) {
      members[member].end_step();
      layers[member].end_step();
      EXPECT_EQ(memory(members[member]), memory(layers[member])) << recipe << ", step " << step << ' ' << member;
    }
  }
}

const std::vector<std::pair<std::string, Setting>> kSettings = {{"plain", plain},
                                                                {"mixed", mixed},
                                                                {"measured", measured},
                                                                {"in a trial", in_a_trial},
                                                                {"in recovery", in_recovery},
                                                                {"saved in 8 bits", saved_in_8_bits},
                                                                {"weights again", weights_again}};

/// A recipe, and whether what FP8 data can hold becomes such, by the kernels' slow references.
struct Case {
  std::string recipe;
  bool in_codes = false;
};

class MembersOf : public ::testing::TestWithParam<Case> {
 protected:
  MembersOf() { set_codes_on_host(GetParam().in_codes); }
  ~MembersOf() override { set_codes_on_host(false); }
};

TEST_P(MembersOf, AreLayersOfTheirOwn) {
  for (const auto& [name, setting] : kSettings) {
    SCOPED_TRACE(name);
    compare_with_layers(GetParam().recipe, setting);
  }
}

/// Members in another order, with their rows: the results are the same ones in that order.
TEST_P(MembersOf, PermutedPermuteResults) {
  const std::array<std::size_t, kMembers> order = {3, 0, 4, 2, 1};
  const PlainFrontEnd front_end;
  const auto clock = std::make_shared<StepClock>(StepClock{.seed = 4});
  std::vector<LinearPaths> members = paths_of(GetParam().recipe, kMembers, clock);
  for (std::size_t member = 0; member < kMembers; ++member) in_recovery(1, member, members[member]);
  std::vector<LinearPaths> permuted;
  for (const std::size_t member : order) permuted.push_back(members[member]);
  for (std::size_t step = 0; step < 2; ++step) {
    clock->step = static_cast<std::int64_t>(step);  // weights change between steps only
    const std::vector<std::int32_t>& rows = kRouting[step];
    const Operands given = operands(front_end, rows, step);
    Operands moved;
    std::vector<std::int32_t> moved_rows;
    for (const std::size_t member : order) {
      moved.inputs.push_back(given.inputs[member]);
      moved.weights.push_back(given.weights[member]);
      moved.gradients.push_back(given.gradients[member]);
      moved_rows.push_back(rows[member]);
    }
    const std::vector<std::int32_t> offsets = offsets_of(rows);
    const std::vector<std::int32_t> moved_offsets = offsets_of(moved_rows);
    const Results a = run(front_end, Members(members, {offsets}), stacked(front_end, given.inputs),
                          stacked(front_end, given.weights), stacked(front_end, given.gradients));
    const Results b = run(front_end, Members(permuted, {moved_offsets}), stacked(front_end, moved.inputs),
                          stacked(front_end, moved.weights), stacked(front_end, moved.gradients));
    for (std::size_t place = 0; place < kMembers; ++place) {
      const std::size_t member = order[place];
      EXPECT_EQ(bits(b.output, moved_offsets[place], rows[member]), bits(a.output, offsets[member], rows[member]));
      EXPECT_EQ(bits(b.input_gradient, moved_offsets[place], rows[member]),
                bits(a.input_gradient, offsets[member], rows[member]));
      EXPECT_EQ(bits(b.weight_gradient, static_cast<std::int64_t>(place) * kOutputs, kOutputs),
                bits(a.weight_gradient, static_cast<std::int64_t>(member) * kOutputs, kOutputs));
      members[member].end_step();
      permuted[place].end_step();
      EXPECT_EQ(memory(permuted[place]), memory(members[member]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, MembersOf,
                         ::testing::Values(Case{"fp8-tensorwise"}, Case{"fp8-delayed"}, Case{"fp8-rowwise"},
                                           Case{"fp8-deepseek"}, Case{"mxfp8"}, Case{"int4-act"}, Case{"nvfp4"},
                                           Case{"nvfp4-hadamard"}, Case{"fp8-tensorwise", true},
                                           Case{"fp8-delayed", true}, Case{"fp8-rowwise", true},
                                           Case{"fp8-deepseek", true}),
                         [](const auto& one) {
                           std::string name = one.param.recipe + (one.param.in_codes ? "_data" : "");
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

/// Refuses to take matrices apart, and counts those that it makes.
class OneMatrixFrontEnd final : public PlainFrontEnd {
 public:
  Matrix empty(const Matrix& like, Type type, std::int64_t rows, std::int64_t columns) const override {
    ++made_;
    return PlainFrontEnd::empty(like, type, rows, columns);
  }
  Matrix part(const Matrix&, std::int64_t, std::int64_t, std::int64_t) const override { throw Error("a part"); }
  void copy_into(const Matrix&, const Matrix&) const override { throw Error("a copy"); }
  int made() const { return made_; }

 private:
  mutable int made_ = 0;
};

TEST(Members, OfOneTakeNothingApartAndMakeNothingMore) {
  const auto clock = std::make_shared<StepClock>();
  for (const bool high : {false, true}) {
    const OneMatrixFrontEnd front_end;
    std::vector<LinearPaths> paths = paths_of("fp8-tensorwise", 1, clock);
    paths[0].low.fill(!high);
    const Operands given = operands(front_end, {40}, 1);
    const int before = front_end.made();
    run(front_end, paths[0], given.inputs[0], given.weights[0], given.gradients[0]);
    // Three results, and low: three operands, each quantized once.
    EXPECT_EQ(front_end.made() - before, high ? 3 : 6);
  }
}

TEST(Members, OfOneWithOffsetsAreTheLayer) {
  const PlainFrontEnd front_end;
  const auto clock = std::make_shared<StepClock>();
  std::vector<LinearPaths> with = paths_of("fp8-delayed", 1, clock);
  std::vector<LinearPaths> without = paths_of("fp8-delayed", 1, clock);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const std::vector<std::int32_t> offsets = {0, 40};
    const Operands given = operands(front_end, {40}, step);
    const Results a = run(front_end, Members(with, {offsets}), given.inputs[0], given.weights[0], given.gradients[0]);
    const Results b = run(front_end, without[0], given.inputs[0], given.weights[0], given.gradients[0]);
    EXPECT_EQ(bits(a.output), bits(b.output));
    EXPECT_EQ(bits(a.input_gradient), bits(b.input_gradient));
    EXPECT_EQ(bits(a.weight_gradient), bits(b.weight_gradient));
    with[0].end_step();
    without[0].end_step();
    EXPECT_EQ(memory(with[0]), memory(without[0]));
  }
}

/// A member that has rows in the first step only: its histories stay, and its scales are those of that step.
TEST(Members, WithoutRowsKeepTheirHistories) {
  const PlainFrontEnd front_end;
  std::vector<LinearPaths> members = paths_of("fp8-delayed", 2, std::make_shared<StepClock>());
  std::vector<formats::DelayedState> first;
  for (std::size_t step = 0; step < 4; ++step) {
    const std::vector<std::int32_t> rows = {5, step == 0 ? 3 : 0};
    const std::vector<std::int32_t> offsets = offsets_of(rows);
    const Operands given = operands(front_end, rows, step);
    for (LinearPaths& paths : members) paths.begin_step();
    run(front_end, Members(members, {offsets}), stacked(front_end, given.inputs), stacked(front_end, given.weights),
        stacked(front_end, given.gradients));
    for (LinearPaths& paths : members) paths.end_step();
    const std::vector<formats::DelayedState> states = members[1].amax.states(*members[1].recipe);
    if (step == 0) first = states;
    ASSERT_EQ(states.size(), 6u);
    for (std::size_t index = 0; index < states.size(); ++index) {
      EXPECT_EQ(states[index].amax_history, first[index].amax_history);
      EXPECT_EQ(states[index].observations, 1u);
      EXPECT_EQ(states[index].scale, first[index].scale);
      EXPECT_TRUE(std::isfinite(states[index].scale) && states[index].scale > 0);
    }
    EXPECT_EQ(members[0].amax.states(*members[0].recipe)[0].observations, step + 1);
  }
}

/// Only what is wanted is made, and nothing of a gradient is needed for the other one.
TEST(Members, GradientsThatAreNotWantedAreNotMade) {
  const PlainFrontEnd front_end;
  std::vector<LinearPaths> members = paths_of("fp8-rowwise", 3, std::make_shared<StepClock>());
  const std::vector<std::int32_t> rows = {4, 0, 9};
  const std::vector<std::int32_t> offsets = offsets_of(rows);
  const Operands given = operands(front_end, rows, 8);
  const Members all(members, {offsets});
  const Matrix gradient = stacked(front_end, given.gradients);
  const Saved saved =
      forward(front_end, all, stacked(front_end, given.inputs), stacked(front_end, given.weights)).saved;
  const Gradients both = backward(front_end, all, saved, gradient, true, true);
  const Gradients input = backward(front_end, all, saved, gradient, true, false);
  const Gradients weight = backward(front_end, all, saved, gradient, false, true);
  EXPECT_FALSE(input.weight.defined());
  EXPECT_FALSE(weight.input.defined());
  EXPECT_EQ(bits(input.input), bits(both.input));
  EXPECT_EQ(bits(weight.weight), bits(both.weight));
}

class WrongMembers : public ::testing::Test {
 protected:
  /// The message of a forward with three members, ten rows and a weight of so many rows.
  std::string refusal(const std::vector<std::int32_t>& offsets, std::int64_t weight_rows = 3 * kOutputs,
                      Place place = Place::host) {
    Numbers numbers(1);
    const Matrix input = numbers.matrix(front_end, 10, kInputs);
    const Matrix weight = numbers.matrix(front_end, weight_rows, kInputs);
    try {
      forward(front_end, Members(members, {offsets, place}), input, weight);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }

  PlainFrontEnd front_end;
  std::vector<LinearPaths> members = paths_of("fp8-tensorwise", 3, std::make_shared<StepClock>());
};

TEST_F(WrongMembers, AreRefused) {
  const std::string by = "[members] expected ";
  EXPECT_EQ(refusal({0, 4, 4, 10}), "none");
  EXPECT_EQ(refusal({}), by + "4 row offsets for 3 members, got 0");
  EXPECT_EQ(refusal({0, 4, 10}), by + "4 row offsets for 3 members, got 3");
  EXPECT_EQ(refusal({0, 4, 4, 4, 10}), by + "4 row offsets for 3 members, got 5");
  EXPECT_EQ(refusal({1, 4, 4, 10}), by + "row offsets from 0, got 1");
  EXPECT_EQ(refusal({-1, 4, 4, 10}), by + "row offsets from 0, got -1");
  EXPECT_EQ(refusal({0, 5, 4, 10}), by + "ascending row offsets, got 4 after 5 (member 1)");
  EXPECT_EQ(refusal({0, 5, 11, 10}), by + "ascending row offsets, got 10 after 11 (member 2)");
  EXPECT_EQ(refusal({0, 4, 4, 9}), by + "row offsets up to the number of rows, 10, got 9");
  EXPECT_EQ(refusal({0, 4, 4, 11}), by + "row offsets up to the number of rows, 10, got 11");
  EXPECT_EQ(refusal({0, 4, 4, 10}, 3 * kOutputs + 1),
            by + "a weight of as many rows for each of 3 members, got 25 rows");
  EXPECT_EQ(refusal({0, 4, 4, 10}, 3 * kOutputs, Place::device),
            by + "row offsets in host memory: those on a device are not supported yet");
  members[1].save_low = true;
  EXPECT_EQ(refusal({0, 4, 4, 10}), by + "members with one recipe, one hook and inputs saved alike");
  members.clear();
  EXPECT_EQ(refusal({0}), by + "at least one member");
}

TEST_F(WrongMembers, AreRefusedInBackwardToo) {
  Numbers numbers(2);
  const std::vector<std::int32_t> offsets = {0, 4, 4, 10};
  const Members all(members, {offsets});
  const Saved saved =
      forward(front_end, all, numbers.matrix(front_end, 10, kInputs), numbers.matrix(front_end, 3 * kOutputs, kInputs))
          .saved;
  EXPECT_THROW(backward(front_end, all, saved, numbers.matrix(front_end, 9, kOutputs), true, true), Error);
}

}  // namespace
}  // namespace gnmr::low
