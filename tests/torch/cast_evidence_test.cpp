// SPDX-License-Identifier: Apache-2.0
// What units tell of their casts.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "gnmr/torch/operand_cast.h"
#include "torch/small_model.h"

namespace gnmr::nn {
namespace {

using testing::builtin;
using testing::SmallModel;

/// The first layer's input, weight and output gradient in one micro-batch.
struct StemOperands {
  at::Tensor input, weight, gradient;
};

StemOperands run(SmallModel& model, std::uint64_t seed) {
  const at::Tensor input = testing::normal({5, 6}, seed);
  at::Tensor made = model.stem->forward(input);
  made.retain_grad();
  at::Tensor hidden = made;
  for (const auto& block : model.blocks) hidden = block->forward(hidden);
  (model.head->forward(hidden).square().mean() * 1e-3).backward();
  return {input, model.stem->weight.detach(), made.grad()};
}

/// Error, saturated and flushed share of the worst of several casts, counted directly.
class Worst {
 public:
  void add(const at::Tensor& before, const at::Tensor& after, double largest) {
    const at::Tensor wide = before.to(at::kDouble);
    const double squares = wide.square().sum().item<double>();
    const double error = (wide - after.to(at::kDouble)).square().sum().item<double>();
    relative_error = std::max(relative_error, std::sqrt(error / squares));
    const auto elements = static_cast<double>(before.numel());
    saturated =
        std::max(saturated, static_cast<double>((before.abs() > largest).sum().item<std::int64_t>()) / elements);
    const at::Tensor zeroed = (before != 0).logical_and(after == 0);
    flushed = std::max(flushed, static_cast<double>(zeroed.sum().item<std::int64_t>()) / elements);
  }
  double relative_error = 0, saturated = 0, flushed = 0;
};

TEST(CastEvidence, IsWhatTheCastsDid) {
  SmallModel model;
  RecoverableUnits units(model, builtin("int4-act"), {.allow = {"stem"}});
  units.measure_casts(true);
  units.begin_step(1);
  const StemOperands seen = run(model, 4);
  Worst worst;
  const CastRule act{.format = formats::Format::int4, .grouping = recipes::Grouping::tensor};
  const CastRule rest{.format = formats::Format::bfloat16, .grouping = recipes::Grouping::none};
  worst.add(seen.input, cast_operand(seen.input, {.rule = act}), 1e30);
  worst.add(seen.weight, cast_operand(seen.weight, {.rule = rest}), 1e30);
  worst.add(seen.gradient, cast_operand(seen.gradient, {.rule = rest}), 1e30);
  const CastEvidence evidence = units.evidence(0);
  EXPECT_TRUE(evidence.measured);
  EXPECT_NEAR(evidence.relative_error, worst.relative_error, 1e-9);
  EXPECT_GT(evidence.relative_error, 0.02);
  EXPECT_EQ(evidence.saturated, 0);
  EXPECT_DOUBLE_EQ(evidence.flushed, worst.flushed);
  EXPECT_GT(evidence.flushed, 0);
}

TEST(CastEvidence, AddsUpOverMicroBatchesAndForgetsTheLastStep) {
  SmallModel model;
  RecoverableUnits units(model, builtin("fp8-delayed"), {.allow = {"stem"}});
  units.measure_casts(true);
  units.begin_step(1);
  run(model, 4);
  units.end_step();
  units.begin_step(2);
  EXPECT_FALSE(units.evidence(0).measured);
  const float scale = model.stem->paths().delayed[0][0].scale;
  const CastRule rule = *builtin("fp8-delayed")->rule(Product::forward, 0);
  at::Tensor inputs;
  for (std::uint64_t seed = 5; seed < 8; ++seed) {
    const at::Tensor input = run(model, seed).input;
    inputs = inputs.defined() ? at::cat({inputs, input}) : input;
  }
  Worst worst;
  worst.add(inputs, cast_operand(inputs, {.rule = rule, .delayed_scale = scale}), 464.0 * scale);
  const formats::Statistics& forward = model.stem->paths().measured[0].casts[0];
  EXPECT_EQ(forward.elements, static_cast<std::uint64_t>(inputs.numel()));
  EXPECT_NEAR(forward.relative_error(), worst.relative_error, 1e-9);
  EXPECT_DOUBLE_EQ(static_cast<double>(forward.overflowed) / static_cast<double>(forward.elements), worst.saturated);
  const formats::Statistics& weight_gradient = model.stem->paths().measured[2].casts[1];
  EXPECT_EQ(weight_gradient.elements, forward.elements) << "a cast that serves two products belongs to both";
  EXPECT_DOUBLE_EQ(weight_gradient.squared_error, forward.squared_error);
}

TEST(CastEvidence, FaultsRaiseIt) {
  std::vector<CastEvidence> found;
  for (const Fault fault : {Fault::none, Fault::saturate, Fault::overflow}) {
    SmallModel model;
    RecoverableUnits units(model, builtin("fp8-delayed"), {.allow = {"stem"}});
    units.measure_casts(true);
    units.begin_step(1);
    run(model, 4);
    units.end_step();
    const std::vector<LayerFault> faults{{"stem", fault, 16}};
    units.begin_step(2, faults);
    const at::Tensor input = run(model, 5).input;
    found.push_back(units.evidence(0));
    // Cut to 1/16 of the largest magnitude, or made larger above 1/8 of it.
    const float limit = finite_amax(input) / (fault == Fault::saturate ? 16 : 8);
    const auto changed = static_cast<double>((input.abs() > limit).sum().item<std::int64_t>());
    if (fault == Fault::none) continue;
    EXPECT_DOUBLE_EQ(found.back().saturated, changed / static_cast<double>(input.numel()));
    EXPECT_LE(found.back().saturated, 1);
  }
  EXPECT_LT(found[0].relative_error, 0.1);
  EXPECT_LT(found[0].saturated, 0.1);
  EXPECT_GT(found[1].relative_error, 0.5);
  EXPECT_GT(found[1].saturated, 0.5);
  EXPECT_GT(found[2].relative_error, 0.2);
  EXPECT_GT(found[2].saturated, 0.02);
}

TEST(CastEvidence, CostsNothingWhereItIsNotAskedFor) {
  SmallModel model;
  RecoverableUnits units(model, builtin("fp8-delayed"), {});
  units.begin_step(1);
  run(model, 4);
  for (const auto& block : model.blocks) {
    for (const ProductMeasurement& product : block->up->paths().measured) {
      for (const formats::Statistics& cast : product.casts) EXPECT_EQ(cast.elements, 0u);
    }
  }
  EXPECT_FALSE(units.evidence(1).measured);
  // A unit that runs high casts nothing; an evaluation is not measured.
  units.measure_casts(true);
  units.request(std::vector<UnitIndex>{0});
  units.begin_step(2);
  {
    const EvaluationPaths evaluation(units, false);
    run(model, 4);
  }
  EXPECT_FALSE(units.evidence(1).measured);
  run(model, 4);
  EXPECT_FALSE(units.evidence(0).measured);
  EXPECT_TRUE(units.evidence(1).measured);
}

}  // namespace
}  // namespace gnmr::nn
