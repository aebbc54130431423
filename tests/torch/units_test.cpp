// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/units.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/torch/squared_norm.h"
#include "io/temporary_folder.h"
#include "torch/cutting_hook.h"
#include "torch/small_model.h"

namespace gnmr::nn {
namespace {

using test::error_of;
using testing::builtin;
using testing::names_of;
using testing::norms_of;
using testing::same_bits;
using testing::SmallModel;
using Names = std::vector<std::string>;

double length(const at::Tensor& tensor) { return tensor.to(at::kDouble).norm().item<double>(); }

TEST(Units, AreFoundInForwardOrderWithCostsAndGroups) {
  SmallModel model;
  const RecoverableUnits units(model, builtin("fp8-delayed"), {});
  EXPECT_EQ(names_of(units), (Names{"stem", "layers.0.up", "layers.0.down", "layers.1.up", "layers.1.down"}));
  EXPECT_EQ(units.layer_names(), names_of(units));
  EXPECT_EQ(units.units()[0].cost, 3 * 6 * 8);
  EXPECT_EQ(units.units()[1].cost, 3 * 8 * 12);
  EXPECT_EQ(units.units()[0].group, "");
  EXPECT_EQ(units.units()[2].group, "layers.0");
  EXPECT_EQ(units.units()[3].group, "layers.1");
  const double share = 100.0 * (48 + 4 * 96) / (48 + 4 * 96 + 80);
  char text[128];
  std::snprintf(text, sizeof text, "5 units: 5 of 6 linear layers, %.1f%% of their multiply-adds; left out: head",
                share);
  EXPECT_EQ(units.coverage().text(), text);
}

TEST(Units, GlobsChooseThem) {
  SmallModel model;
  const RecoverableUnits some(model, builtin("fp8-delayed"),
                              {.allow = {"layers.*", "head"}, .deny = {"*.1.down"}, .forced = {"*.up"}});
  EXPECT_EQ(names_of(some), (Names{"layers.0.up", "layers.0.down", "layers.1.up", "head"}));
  EXPECT_TRUE(some.units()[0].forced);
  EXPECT_FALSE(some.units()[1].forced);
  EXPECT_TRUE(some.units()[2].forced);
  EXPECT_EQ(some.coverage().left_out, (Names{"stem", "layers.1.down"}));
  EXPECT_EQ(some.coverage().all_layers, 6u);
  EXPECT_EQ(model.stem->paths().recipe, nullptr) << "what is left out has no low path";
  SmallModel none;
  EXPECT_TRUE(RecoverableUnits(none, builtin("fp8-delayed"), {.allow = {"nothing"}}).units().empty());
}

TEST(Units, AreProductsOrBlocks) {
  SmallModel model;
  const RecoverableUnits products(model, builtin("fp8-delayed"),
                                  {.granularity = Granularity::product, .allow = {"stem", "*.0.down"}});
  EXPECT_EQ(names_of(products),
            (Names{"stem.forward", "stem.input_gradient", "stem.weight_gradient", "layers.0.down.forward",
                   "layers.0.down.input_gradient", "layers.0.down.weight_gradient"}));
  EXPECT_EQ(products.units()[3].cost, 96);
  EXPECT_EQ(products.units()[3].group, "layers.0");
  SmallModel other;
  const RecoverableUnits blocks(other, builtin("fp8-delayed"), {.granularity = Granularity::block});
  EXPECT_EQ(names_of(blocks), (Names{"stem", "layers.0", "layers.1"}));
  EXPECT_EQ(blocks.units()[1].cost, 2 * 3 * 96);
  EXPECT_EQ(blocks.coverage().layers, 5u);
  SmallModel third;
  const RecoverableUnits saved(third, builtin("fp8-delayed"), {.allow = {"layers.0.*"}, .save_in_8_bits = true});
  EXPECT_EQ(names_of(saved), (Names{"layers.0.up.saved", "layers.0.up", "layers.0.down.saved", "layers.0.down"}));
}

TEST(Units, SwitchesMoveOnlyBetweenSteps) {
  SmallModel model;
  RecoverableUnits units(model, builtin("int4-act"), {});
  units.begin_step(1);
  const at::Tensor all_low = model.run(9);
  const LinearPaths& up = model.blocks[0]->up->paths();
  EXPECT_EQ(up.low, (std::array<bool, 3>{true, true, true}));
  const std::vector<UnitIndex> high{1};
  units.request(high);
  EXPECT_TRUE(up.low[0]) << "a request waits for the step's beginning";
  EXPECT_FALSE(units.is_high(1));
  EXPECT_EQ(units.high_count(), 0u);
  EXPECT_TRUE(same_bits(model.run(9), all_low));
  units.end_step();
  EXPECT_TRUE(up.low[0]);
  units.begin_step(2);
  EXPECT_EQ(up.low, (std::array<bool, 3>{false, false, false}));
  EXPECT_TRUE(model.blocks[1]->up->paths().low[0]);
  EXPECT_TRUE(units.is_high(1));
  EXPECT_EQ(units.high_count(), 1u);
  EXPECT_FALSE(same_bits(model.run(9), all_low));
  units.begin_step(3);
  EXPECT_FALSE(up.low[0]) << "a request holds until the next one";
  units.request({});
  units.begin_step(4);
  EXPECT_TRUE(same_bits(model.run(9), all_low));
  const std::vector<UnitIndex> wrong{5};
  EXPECT_THROW(units.request(wrong), Error);
}

/// INT4 activations; units in recovery run as this says.
std::shared_ptr<const Recipe> recovering_to(const std::string& recovery) {
  return std::make_shared<Recipe>(
      recipes::parse_recipe(R"({"name": "r", "input": {"format": "int4"}, "recovers_to": )" + recovery + "}"));
}

TEST(Units, InRecoveryRunWhatTheRecipeRecoversTo) {
  // All units in recovery compute what a model does whose low path has those rules.
  const std::vector<UnitIndex> all{0, 1, 2, 3, 4};
  struct Case {
    std::string recovery;
    std::shared_ptr<const Recipe> same;
  };
  const auto same_as = [](const std::string& json) { return std::make_shared<Recipe>(recipes::parse_recipe(json)); };
  for (const Case& one : {Case{R"("fp8-rowwise")", builtin("fp8-rowwise")}, Case{R"("nvfp4")", builtin("nvfp4")},
                          Case{R"("high")", nullptr},
                          Case{R"({"forward": "high", "input_gradient": "low", "weight_gradient": "int8"})",
                               same_as(R"({"name": "s", "products": {"weight_gradient": {
               "input": {"format": "int8", "scaling": "row"},
               "output_gradient": {"format": "int8", "scaling": "row"}}}})")}}) {
    SmallModel model;
    SmallModel expected;
    RecoverableUnits units(model, recovering_to(one.recovery), {});
    RecoverableUnits others(expected, one.same, {});
    units.request(all, all);
    units.begin_step(1);
    others.begin_step(1);
    EXPECT_TRUE(same_bits(model.run(9), expected.run(9))) << one.recovery;
    for (std::size_t parameter = 0; parameter < units.parameters().size(); ++parameter) {
      EXPECT_TRUE(same_bits(units.parameters()[parameter].grad(), others.parameters()[parameter].grad()))
          << one.recovery << ", parameter " << parameter;
    }
    EXPECT_EQ(units.high_count(), 5u);
  }
}

TEST(Units, AreHighWhereNoRecoveryMadeThemSo) {
  const std::vector<UnitIndex> all{0, 1, 2, 3, 4};
  SmallModel high_model;
  RecoverableUnits high(high_model, nullptr, {});
  high.begin_step(1);
  const at::Tensor expected = high_model.run(9);
  SmallModel model;
  RecoverableUnits units(model, recovering_to(R"("nvfp4")"), {});
  units.request(all);
  units.begin_step(1);
  EXPECT_TRUE(same_bits(model.run(9), expected)) << "the user's choice";
  units.request(all, all);
  units.begin_step(2, PassKind::trial);
  EXPECT_TRUE(same_bits(model.run(9), expected)) << "a trial";
  units.begin_step(3);
  EXPECT_FALSE(same_bits(model.run(9), expected)) << "a recovery";
  {
    const EvaluationPaths evaluation(units, EvaluatedPath::high);
    EXPECT_TRUE(same_bits(model.run(9), expected)) << "an evaluation";
  }
  EXPECT_FALSE(same_bits(model.run(9), expected)) << "as before";
}

TEST(Units, AnEvaluationAsTrainedHasThePathsOfTheLastStep) {
  const std::vector<UnitIndex> one{1};
  SmallModel model;
  RecoverableUnits units(model, recovering_to(R"("nvfp4")"), {});
  const auto output_on = [&](EvaluatedPath path) {
    const EvaluationPaths evaluation(units, path);
    return model.run(9);
  };
  units.begin_step(1);
  EXPECT_EQ(units.high_cost_share(), 0);
  EXPECT_TRUE(same_bits(output_on(EvaluatedPath::trained), output_on(EvaluatedPath::low))) << "nobody is high";
  for (const std::vector<UnitIndex>& in_recovery : {std::vector<UnitIndex>{}, one}) {
    units.request(one, in_recovery);
    units.begin_step(2);
    const at::Tensor trained = model.run(9);
    EXPECT_TRUE(same_bits(output_on(EvaluatedPath::trained), trained));
    EXPECT_FALSE(same_bits(output_on(EvaluatedPath::low), trained));
    EXPECT_FALSE(same_bits(output_on(EvaluatedPath::high), trained));
    EXPECT_TRUE(same_bits(model.run(9), trained)) << "as before";
  }
  double all = 0;
  for (const Unit& unit : units.units()) all += static_cast<double>(unit.cost);
  EXPECT_DOUBLE_EQ(units.high_cost_share(), static_cast<double>(units.units()[1].cost) / all);
  units.begin_step(3, PassKind::trial);
  EXPECT_EQ(units.high_cost_share(), 1);
}

TEST(Units, TheLowPathOfAUnitInRecoveryIsComparedWithWhatRuns) {
  const std::vector<UnitIndex> one{1};
  SmallModel model;
  RecoverableUnits units(model, recovering_to(R"("int4-act")"), {});
  units.request(one, one);
  units.measure_high(one);
  units.begin_step(1);
  model.run(9);
  const std::vector<double> errors = units.errors(units.error_sums());
  // Both round the input to 4 bits in forward and wgrad; what is left is the rounding of the others to bfloat16.
  for (const std::size_t product : {0u, 2u}) {
    EXPECT_GT(errors[3 + product], 1e-6);
    EXPECT_LT(errors[3 + product], 5e-3);
  }
}

TEST(Units, TheLowPathOfAUnitInRecoveryCanBeMeasuredBesideAStep) {
  const std::vector<UnitIndex> high{1};
  const std::vector<UnitIndex> asked{1, 2};  // unit 2 runs low: that is the patrol's
  const auto errors_of = [](const RecoverableUnits& units, UnitIndex unit) {
    const std::vector<double> errors = units.errors(units.error_sums());
    return std::vector<double>(errors.begin() + unit * 3, errors.begin() + unit * 3 + 3);
  };
  SmallModel calm;
  SmallModel measured;
  RecoverableUnits calm_units(calm, builtin("int4-act"), {});
  RecoverableUnits units(measured, builtin("int4-act"), {});
  for (RecoverableUnits* const one : {&calm_units, &units}) one->request(high);
  units.measure_high(asked);
  for (std::int64_t step = 1; step <= 2; ++step) {
    calm_units.begin_step(step);
    units.begin_step(step);
    EXPECT_TRUE(same_bits(calm.run(9), measured.run(9)));
    for (std::size_t product = 0; product < 3; ++product) {
      EXPECT_TRUE(std::isnan(errors_of(calm_units, 1)[product]));
      EXPECT_EQ(std::isnan(errors_of(units, 1)[product]), step == 2) << "asked for once";
      EXPECT_TRUE(std::isnan(errors_of(units, 2)[product]));
    }
    if (step == 1) {
      EXPECT_GT(errors_of(units, 1)[0], 0.01);
    }
    calm_units.end_step();
    units.end_step();
  }
  for (std::size_t index = 0; index < calm.parameters().size(); ++index) {
    EXPECT_TRUE(same_bits(calm.parameters()[index].grad(), measured.parameters()[index].grad())) << index;
  }
  const std::vector<UnitIndex> wrong{5};
  EXPECT_THROW(units.measure_high(wrong), Error);
}

TEST(Units, ARequestInTheMiddleOfAStepChangesNothingInIt) {
  // Forward on one side, backward on the other: gradients are those of an undisturbed step.
  SmallModel calm;
  SmallModel disturbed;
  for (SmallModel* const model : {&calm, &disturbed}) {
    RecoverableUnits units(*model, builtin("int4-act"), {.granularity = Granularity::product});
    units.begin_step(1);
    const at::Tensor output = model->forward(testing::normal({5, 6}, 9));
    std::vector<UnitIndex> all;
    for (UnitIndex unit = 0; unit < units.units().size(); ++unit) all.push_back(unit);
    if (model == &disturbed) units.request(all);
    output.square().mean().backward();
  }
  for (std::size_t index = 0; index < calm.parameters().size(); ++index) {
    EXPECT_TRUE(same_bits(calm.parameters()[index].grad(), disturbed.parameters()[index].grad())) << index;
  }
}

TEST(Units, ProductsAndSavedInputsAreSwitchedAlone) {
  SmallModel model;
  RecoverableUnits units(model, builtin("fp8-delayed"),
                         {.granularity = Granularity::product, .allow = {"stem"}, .save_in_8_bits = true});
  ASSERT_EQ(names_of(units).front(), "stem.saved");
  for (UnitIndex unit = 0; unit < 4; ++unit) {
    units.request(std::vector<UnitIndex>{unit});
    units.begin_step(unit);
    std::array<bool, 3> expected{true, true, true};
    if (unit > 0) expected[unit - 1] = false;
    EXPECT_EQ(model.stem->paths().low, expected);
    EXPECT_EQ(model.stem->paths().save_low, unit != 0);
  }
  SmallModel other;
  RecoverableUnits blocks(other, builtin("fp8-delayed"), {.granularity = Granularity::block, .save_in_8_bits = true});
  blocks.request(std::vector<UnitIndex>{2});
  blocks.begin_step(1);
  EXPECT_FALSE(other.blocks[1]->up->paths().low[1]);
  EXPECT_FALSE(other.blocks[1]->down->paths().save_low);
  EXPECT_TRUE(other.blocks[0]->down->paths().save_low);
  // Without a recipe everything is high, but inputs may still wait in 8 bits.
  SmallModel third;
  RecoverableUnits high(third, nullptr, {.save_in_8_bits = true});
  high.begin_step(1);
  EXPECT_FALSE(third.stem->paths().low[0]);
  EXPECT_TRUE(third.stem->paths().save_low);
}

TEST(Units, NormsOfLayersAndBlocksAreThoseOfTheirParameters) {
  for (const bool with_recipe : {false, true}) {
    SmallModel model;
    RecoverableUnits layers(model, with_recipe ? builtin("fp8-delayed") : nullptr, {});
    layers.begin_step(1);
    model.run(1);
    model.run(2);
    const auto norms = norms_of(layers);
    const auto& block = *model.blocks[1];
    const double up = std::hypot(length(block.up->weight.grad()), length(block.up->bias.grad()));
    EXPECT_NEAR(norms.values[0], length(model.stem->weight.grad()), 1e-12);
    EXPECT_NEAR(norms.values[3], up, 1e-12 * up);
    EXPECT_EQ(norms.sampled, (std::vector<std::uint8_t>{1, 1, 1, 1, 1}));
    RecoverableUnits blocks(model, nullptr, {.granularity = Granularity::block});
    EXPECT_NEAR(norms_of(blocks).values[2], std::hypot(up, length(block.down->weight.grad())), 1e-12 * up);
    // No gradient is no sample; one that is there and 0 is a sample.
    model.stem->weight.mutable_grad().reset();
    block.up->weight.mutable_grad().zero_();
    block.up->bias.mutable_grad().zero_();
    const auto without = norms_of(layers);
    EXPECT_EQ(without.sampled[0], 0);
    EXPECT_EQ(without.sampled[3], 1);
    EXPECT_EQ(without.values[3], 0);
    EXPECT_THROW(layers.norms({}, {}, {}), Error);
  }
}

TEST(Units, NormsOfProductsAreThoseOfTheirGradients) {
  SmallModel model;
  RecoverableUnits units(model, builtin("fp8-rowwise"), {.granularity = Granularity::product, .allow = {"layers.1.*"}});
  units.begin_step(1);
  double weight_squares = 0;
  double output_squares = 0;
  for (std::uint64_t micro_batch = 0; micro_batch < 2; ++micro_batch) {
    units.begin_micro_batch(static_cast<std::int64_t>(micro_batch));
    at::Tensor hidden = model.stem->forward(testing::normal({5, 6}, micro_batch));
    hidden = model.blocks[0]->forward(hidden);
    const at::Tensor inside = model.blocks[1]->up->forward(hidden).relu();
    const at::Tensor made = model.blocks[1]->down->forward(inside);
    const at::Tensor loss = model.head->forward(hidden + made).square().mean();
    const auto found = torch::autograd::grad({loss}, {made, model.blocks[1]->down->weight});
    output_squares += squared_norm(found[0]);
    weight_squares += squared_norm(found[1]);
  }
  const auto norms = norms_of(units);
  ASSERT_EQ(names_of(units)[3], "layers.1.down.forward");
  EXPECT_NEAR(norms.values[3], std::sqrt(output_squares), 1e-9 * norms.values[3]);
  EXPECT_NEAR(norms.values[5], std::sqrt(weight_squares), 1e-9 * norms.values[5]);
  EXPECT_EQ(norms.sampled[3], 1);
}

TEST(Units, FrozenLayersAreJudgedByTheirOutputsGradient) {
  SmallModel model;
  auto& block = *model.blocks[0];
  for (at::Tensor* const weight : {&block.up->weight, &block.up->bias, &block.down->weight, &model.stem->weight}) {
    weight->set_requires_grad(false);
  }
  RecoverableUnits layers(model, builtin("fp8-delayed"), {});
  layers.begin_step(1);
  const at::Tensor input = testing::normal({5, 6}, 1);
  at::Tensor made;
  const at::Tensor hidden = model.stem->forward(input).detach().requires_grad_();
  made = block.down->forward(block.up->forward(hidden).relu());
  made.retain_grad();
  model.head->forward(model.blocks[1]->forward(hidden + made)).square().mean().backward();
  const auto norms = norms_of(layers);
  EXPECT_NEAR(norms.values[2], length(made.grad()), 1e-9 * norms.values[2]);
  EXPECT_EQ(norms.sampled[2], 1);
  EXPECT_EQ(norms.sampled[0], 0) << "the stem's output needs no gradient: there is no sample";
  EXPECT_EQ(norms.sampled[3], 1);
  // A layer with a bias to train is judged by that; a block by whatever it can train.
  SmallModel partly;
  partly.blocks[0]->up->weight.set_requires_grad(false);
  RecoverableUnits partly_layers(partly, nullptr, {});
  partly_layers.begin_step(1);
  partly.run(1);
  EXPECT_NEAR(norms_of(partly_layers).values[1], length(partly.blocks[0]->up->bias.grad()), 1e-12);
  SmallModel third;
  third.blocks[0]->up->weight.set_requires_grad(false);
  third.blocks[0]->up->bias.set_requires_grad(false);
  RecoverableUnits blocks(third, nullptr, {.granularity = Granularity::block});
  blocks.begin_step(1);
  third.run(1);
  EXPECT_NEAR(norms_of(blocks).values[1], length(third.blocks[0]->down->weight.grad()), 1e-12);
}

TEST(Units, WhatLowPathsRememberCanBeSavedAndRestored) {
  SmallModel model;
  RecoverableUnits units(model, builtin("fp8-delayed"), {.allow = {"layers.*"}});
  for (std::int64_t step = 1; step <= 3; ++step) {
    units.begin_step(step);
    model.run(static_cast<std::uint64_t>(step), 1.5 * static_cast<double>(step));
    units.end_step();
  }
  auto memory = units.memory();
  EXPECT_EQ(memory.size(), 4u * 6 * 3);
  EXPECT_EQ(memory[0].first, "layers.0.up.forward.input.amax_history");
  EXPECT_EQ(memory[0].second.numel(), 3);
  SmallModel copy;
  RecoverableUnits restored(copy, builtin("fp8-delayed"), {.allow = {"layers.*"}});
  restored.restore_memory(memory);
  const auto again = restored.memory();
  ASSERT_EQ(again.size(), memory.size());
  for (std::size_t index = 0; index < memory.size(); ++index) {
    EXPECT_EQ(again[index].first, memory[index].first);
    EXPECT_TRUE(at::equal(again[index].second, memory[index].second));
  }
  units.begin_step(4);
  restored.begin_step(4);
  EXPECT_TRUE(same_bits(model.run(7), copy.run(7)));

  const auto refused = [&](auto change) {
    auto wrong = memory;
    change(wrong);
    const auto before = restored.memory();
    const std::string message = error_of<Error>([&] { restored.restore_memory(wrong); });
    EXPECT_TRUE(at::equal(before[0].second, restored.memory()[0].second)) << "nothing changed";
    return message;
  };
  const std::string slot = "layers.0.up.forward.input";
  EXPECT_EQ(refused([](auto& list) { list.erase(list.begin() + 1); }), "amax history: " + slot + ".scale is missing");
  EXPECT_NE(refused([](auto& list) { list[0].second = at::zeros({17}); }).find("wrong type or shape"),
            std::string::npos);
  EXPECT_NE(refused([](auto& list) { list[1].second = at::ones({1}, at::kDouble); }).find(slot + ".scale"),
            std::string::npos);
  EXPECT_NE(refused([](auto& list) { list[1].second = at::zeros({1}); }).find(slot), std::string::npos);
  EXPECT_NE(refused([](auto& list) { list[1].second = at::full({1}, INFINITY); }).find(slot), std::string::npos);
  EXPECT_NE(refused([](auto& list) { list[0].second = at::full({2}, NAN); }).find(slot), std::string::npos);
  EXPECT_NE(refused([](auto& list) { list[2].second = at::full({1}, -1, at::kLong); }).find(slot), std::string::npos);
  EXPECT_NE(refused([](auto& list) { list.emplace_back("extra", at::zeros({1})); }).find("extra"), std::string::npos);
  SmallModel tensorwise;
  RecoverableUnits forgetful(tensorwise, builtin("fp8-tensorwise"), {});
  EXPECT_TRUE(forgetful.memory().empty());
  EXPECT_THROW(forgetful.restore_memory(memory), Error);
}

TEST(Units, SitesAreStaleWhereTheEndOfTheStepRenewsAScale) {
  const auto recipe = std::make_shared<Recipe>(recipes::parse_recipe(
      R"({"name": "s", "input": {"format": "e4m3", "scaling": "delayed", "interval": 100, "history": 1}})"));
  constexpr formats::Refresh kRefresh{.factor = 1.25F};
  SmallModel model;
  RecoverableUnits units(model, recipe, {.allow = {"stem", "layers.0.up"}});
  const auto run = [&](std::int64_t step, double scale) {
    units.begin_step(step);
    model.run(9, scale);
    const std::vector<std::uint8_t> stale = units.stale_sites(kRefresh);
    EXPECT_EQ(units.stale_sites({}), std::vector<std::uint8_t>(6, 0)) << "nothing is renewed";
    const std::uint64_t before = units.refreshes();
    units.end_step(kRefresh);
    EXPECT_EQ(units.refreshes() - before,
              static_cast<std::uint64_t>(std::count(stale.begin(), stale.end(), std::uint8_t{1})))
        << "a scale for each GEMM that takes the input";
    return stale;
  };
  EXPECT_EQ(run(1, 1), std::vector<std::uint8_t>(6, 0));
  EXPECT_EQ(run(2, 1), std::vector<std::uint8_t>(6, 0));
  // Forward and wgrad take the input; dgrad does not.
  double scale = 4;
  for (std::int64_t step = 3; step <= 6; ++step, scale *= 4) {
    EXPECT_EQ(run(step, scale), (std::vector<std::uint8_t>{1, 0, 1, 1, 0, 1})) << step;
  }
  EXPECT_EQ(run(7, scale), std::vector<std::uint8_t>(6, 0)) << "not so soon again: what is wrong now counts";
}

TEST(Units, SitesAreStaleTooWhereAScaleThatWasDueMisfits) {
  const auto recipe = std::make_shared<Recipe>(recipes::parse_recipe(
      R"({"name": "s", "input": {"format": "e4m3", "scaling": "delayed", "interval": 1, "history": 1}})"));
  constexpr formats::Refresh kRefresh{.factor = 1.25F};
  SmallModel model;
  RecoverableUnits units(model, recipe, {.allow = {"stem", "layers.0.up"}});
  const auto stale_sites_of = [&](std::int64_t step, double scale) {
    units.begin_step(step);
    model.run(9, scale);
    const std::vector<std::uint8_t> stale = units.stale_sites(kRefresh);
    units.end_step(kRefresh);
    return stale;
  };
  const std::vector<std::uint8_t> none(6, 0), both{1, 0, 1, 1, 0, 1};
  EXPECT_EQ(stale_sites_of(1, 4), none) << "the scale of the first step is its own";
  EXPECT_EQ(stale_sites_of(2, 4), none);
  EXPECT_EQ(stale_sites_of(3, 1), both);
  EXPECT_EQ(stale_sites_of(4, 1), none);
  EXPECT_EQ(stale_sites_of(5, 4), both);
  EXPECT_EQ(units.refreshes(), 0U) << "none came early";
  const auto memory = units.memory();
  RecoverableUnits restored(model, recipe, {.allow = {"stem", "layers.0.up"}});
  restored.restore_memory(memory);
  const auto again = restored.memory();
  ASSERT_EQ(again.size(), memory.size());
  for (std::size_t index = 0; index < memory.size(); ++index) {
    EXPECT_EQ(again[index].first, memory[index].first);
    EXPECT_TRUE(at::equal(again[index].second, memory[index].second)) << memory[index].first;
  }
}

TEST(Units, RefreshesOfAScaleAreSavedAndThoseOfEarlierVersionsLoad) {
  const auto recipe = std::make_shared<Recipe>(recipes::parse_recipe(
      R"({"name": "s", "input": {"format": "e4m3", "scaling": "delayed", "interval": 100, "history": 1},
          "products": {"weight_gradient": {"input": null}}})"));
  SmallModel model;
  RecoverableUnits units(model, recipe, {.allow = {"stem"}});
  const auto run = [&](std::int64_t step, double scale) {
    units.begin_step(step);
    model.run(9, scale);
    units.end_step({.factor = 1.25F});
  };
  for (const auto& [step, scale] : {std::pair{1, 1.0}, {2, 4.0}, {3, 16.0}, {4, 16.0}}) run(step, scale);
  auto memory = units.memory();
  ASSERT_EQ(memory.size(), 5U);
  ASSERT_TRUE(memory[3].first.ends_with(".refreshes") && memory[4].first.ends_with(".refresh_debt"));
  EXPECT_EQ(memory[3].second.item<std::int64_t>(), 2);
  EXPECT_EQ(memory[4].second.item<std::int64_t>(), 18) << "10 at step 2, 9 + 10 at step 3, one less at step 4";
  const auto restored = [&] {
    RecoverableUnits other(model, recipe, {.allow = {"stem"}});
    other.restore_memory(memory);
    return other.memory();
  };
  EXPECT_EQ(restored()[4].second.item<std::int64_t>(), 18);
  memory[4].second = at::full({1}, 41, at::kLong);
  EXPECT_THROW(restored(), Error) << "more than there can be";
  memory.pop_back();
  EXPECT_THROW(restored(), Error) << "no debt";
  memory[3].second = at::tensor({std::int64_t{2}, std::int64_t{3}}, at::kLong);
  EXPECT_EQ(restored()[3].second.item<std::int64_t>(), 2);
  EXPECT_EQ(restored()[4].second.item<std::int64_t>(), 9) << "the last of them was one observation ago";
  memory[3].second = at::tensor({std::int64_t{2}, std::int64_t{5}}, at::kLong);
  EXPECT_THROW(restored(), Error) << "after the last observation";
}

TEST(Units, ListsOfErrorsNameTheTotalsThatMakeTheErrors) {
  const std::vector<UnitSelection> selections{{},
                                              {.granularity = Granularity::product},
                                              {.granularity = Granularity::block},
                                              {.save_in_8_bits = true},
                                              {.granularity = Granularity::product, .save_in_8_bits = true}};
  for (const UnitSelection& selection : selections) {
    SmallModel model;
    const RecoverableUnits units(model, builtin("fp8-delayed"), selection);
    // Each total has an error of its own; every third was not measured.
    std::vector<double> sums = units.error_sums();
    for (std::size_t total = 0; total * 3 < sums.size(); ++total) {
      sums[3 * total] = static_cast<double>((total * 7 % 20 + 1) * (total * 7 % 20 + 1));
      sums[3 * total + 1] = 1;
      sums[3 * total + 2] = total % 3 == 0 ? 0 : 1;
    }
    const std::vector<double> errors = units.errors(sums);
    const kernels::UnitLists lists = units.error_lists();
    ASSERT_EQ(lists.first.size(), errors.size() + 1);
    EXPECT_NO_THROW(kernels::check_lists(lists));
    for (std::size_t place = 0; place < errors.size(); ++place) {
      double largest = -1;
      for (std::uint32_t at = lists.first[place]; at < lists.first[place + 1]; ++at) {
        const std::size_t total = lists.indices[at];
        if (sums[3 * total + 2] > 0) largest = std::max(largest, std::sqrt(sums[3 * total]));
      }
      EXPECT_EQ(std::isnan(errors[place]) ? -1 : errors[place], largest) << place;
    }
  }
}

TEST(Units, LargestMagnitudesCanComeFromOtherProcesses) {
  SmallModel model;
  RecoverableUnits units(model, builtin("fp8-delayed"), {.allow = {"stem", "layers.0.up"}});
  units.begin_step(1);
  model.run(1);
  std::vector<float> amaxes = units.step_amaxes();
  ASSERT_EQ(amaxes.size(), 6u);
  EXPECT_FLOAT_EQ(amaxes[0], testing::normal({5, 6}, 1).abs().max().item<float>());
  EXPECT_FLOAT_EQ(amaxes[1], model.stem->weight.abs().max().item<float>());
  amaxes[0] = 100;
  units.set_step_amaxes(amaxes);
  units.end_step();
  EXPECT_EQ(model.stem->paths().amax.delayed[0][0].amax_history, (std::vector<float>{100}));
  EXPECT_THROW(units.set_step_amaxes(std::vector<float>(5)), Error);
}

TEST(Units, EvaluationRemembersNothingAndPutsEverythingBack) {
  SmallModel model;
  RecoverableUnits units(model, builtin("int4-act"), {.save_in_8_bits = true});
  const std::vector<UnitIndex> high{1, 2};  // stem, and the saved input of layers.0.up
  units.request(high);
  testing::CuttingHook hook(testing::Site::in_cast, 2);  // layers.0.down
  units.set_hook(&hook);
  units.begin_step(1);
  const at::Tensor before = model.run(5);
  const std::size_t calls = hook.calls.size();
  const auto squares = units.product_squares();
  {
    const c10::AutoGradMode no_gradients(false);
    const EvaluationPaths evaluation(units, EvaluatedPath::high);
    SmallModel plain;
    const at::Tensor input = testing::normal({5, 6}, 5);
    EXPECT_LT(testing::relative_difference(model.forward(input), plain.forward(input)), 1e-6);
    model.forward(testing::normal({5, 6}, 6) * 1000);
  }
  {
    const c10::AutoGradMode no_gradients(false);
    const EvaluationPaths evaluation(units, EvaluatedPath::low);
    EXPECT_TRUE(model.stem->paths().low[0]);
    model.forward(testing::normal({5, 6}, 6) * 1000);
    EXPECT_EQ(hook.calls.size(), calls) << "an evaluation is nobody's experiment";
  }
  EXPECT_FALSE(model.stem->paths().low[0]);
  EXPECT_EQ(model.blocks[0]->down->paths().hook, &hook);
  EXPECT_TRUE(model.blocks[0]->down->paths().save_low);
  EXPECT_EQ(units.product_squares(), squares);
  EXPECT_TRUE(same_bits(model.run(5), before));
  // With delayed scaling: what an evaluation sees is not remembered.
  SmallModel delayed;
  RecoverableUnits watched(delayed, builtin("fp8-delayed"), {});
  watched.begin_step(1);
  delayed.run(1);
  const auto amaxes = watched.step_amaxes();
  {
    const EvaluationPaths evaluation(watched, EvaluatedPath::low);
    delayed.run(1, 50);
  }
  EXPECT_EQ(watched.step_amaxes(), amaxes);
}

}  // namespace
}  // namespace gnmr::nn
