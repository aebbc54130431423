// SPDX-License-Identifier: Apache-2.0
// What units tell of their casts.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "torch/cutting_hook.h"
#include "torch/low_on_tensors.h"
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
  const float scale = model.stem->paths().amax.delayed[0][0].scale;
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

TEST(CastEvidence, SeesWhatHappensInACastAndNotWhatHappensBeforeOrAfter) {
  const auto found_with = [](LowPathHook* hook, at::Tensor& input) {
    SmallModel model;
    RecoverableUnits units(model, builtin("fp8-delayed"), {.allow = {"stem"}});
    units.measure_casts(true);
    units.begin_step(1);
    run(model, 4);
    units.end_step();
    units.set_hook(hook);
    units.begin_step(2);
    input = run(model, 5).input;
    return units.evidence(0);
  };
  at::Tensor input;
  const CastEvidence healthy = found_with(nullptr, input);
  EXPECT_LT(healthy.relative_error, 0.1);
  EXPECT_LT(healthy.saturated, 0.1);
  for (const bool enlarges : {false, true}) {
    testing::CuttingHook hook(testing::Site::in_cast, 0, enlarges);
    const CastEvidence found = found_with(&hook, input);
    const float limit = finite_amax(input) / (enlarges ? 8 : 16);
    const auto changed = static_cast<double>((input.abs() > limit).sum().item<std::int64_t>());
    EXPECT_DOUBLE_EQ(found.saturated, changed / static_cast<double>(input.numel()));
    EXPECT_GT(found.saturated, enlarges ? 0.02 : 0.5);
    EXPECT_GT(found.relative_error, enlarges ? 0.2 : 0.5);
    for (const testing::Site site :
         {testing::Site::before_cast, testing::Site::after_cast, testing::Site::after_product}) {
      testing::CuttingHook blind(site, 0, enlarges);
      const CastEvidence unseen = found_with(&blind, input);
      EXPECT_FALSE(blind.calls.empty());
      if (!enlarges) {
        EXPECT_LT(unseen.relative_error, 0.1) << static_cast<int>(site);
      }
    }
  }
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
    const EvaluationPaths evaluation(units, EvaluatedPath::low);
    run(model, 4);
  }
  EXPECT_FALSE(units.evidence(1).measured);
  run(model, 4);
  EXPECT_FALSE(units.evidence(0).measured);
  EXPECT_TRUE(units.evidence(1).measured);
}

}  // namespace
}  // namespace gnmr::nn
