// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gnmr/core/error.h"
#include "gnmr/low/error_sums.h"
#include "gnmr/recipes/host_cast.h"
#include "gnmr/torch/units.h"
#include "torch/cutting_hook.h"
#include "torch/low_on_tensors.h"
#include "torch/small_model.h"
#include "torch/tensor_testing.h"

namespace gnmr::nn {
namespace {

using testing::builtin;
using testing::CuttingHook;
using testing::normal;
using testing::same_bits;
using testing::Site;
using testing::SmallModel;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ProductError, IsTheRelativeDifferenceOverAllMicroBatches) {
  const at::Tensor high = normal({7, 5}, 1);
  const at::Tensor low = high + 0.1 * normal({7, 5}, 2);
  const at::Tensor other_high = 3 * normal({4, 5}, 3);
  const at::Tensor other_low = other_high * 1.5;
  ErrorSums sums;
  EXPECT_TRUE(std::isnan(sums.error()));
  add_error(low, high, sums);
  EXPECT_NEAR(sums.error(), testing::relative_difference(low, high), 1e-8);
  add_error(other_low, other_high, sums);
  EXPECT_NEAR(sums.error(), testing::relative_difference(at::cat({low, other_low}), at::cat({high, other_high})), 1e-9);
}

TEST(ProductError, KnowsWhatIsNotFinite) {
  const at::Tensor high = normal({3, 2}, 1);
  at::Tensor low = high.clone();
  low[1][1] = std::nan("");
  ErrorSums sums;
  add_error(low, high, sums);
  EXPECT_EQ(sums.error(), kInfinity);
  ErrorSums both;
  add_error(low, low, both);
  EXPECT_FALSE(both.measured) << "an input that is not a number says nothing of the low path";
  ErrorSums zero;
  add_error(at::zeros({2, 2}), at::zeros({2, 2}), zero);
  EXPECT_EQ(zero.error(), 0);
  add_error(at::ones({2, 2}), at::zeros({2, 2}), zero);
  EXPECT_EQ(zero.error(), kInfinity);
  ErrorSums projected;
  const at::Tensor signs = random_signs(2, 3, 1, high);
  add_projected_error(low, signs, at::mm(high, signs), projected);
  EXPECT_EQ(projected.error(), kInfinity);
}

TEST(ProductError, AProjectionFindsDenseAndSingleErrors) {
  const at::Tensor high = normal({200, 64}, 1);
  for (const double size : {0.01, 0.1, 1.0}) {
    const at::Tensor dense = high + size * normal({200, 64}, 2);
    at::Tensor one_column = high.clone();
    one_column.select(1, 7) += 8 * size * normal({200}, 3);
    at::Tensor rows = high.clone();
    rows.slice(0, 0, 200, 8) += 2.8 * size * normal({25, 64}, 4);
    for (const at::Tensor& low : {dense, one_column, rows}) {
      double least = kInfinity;
      double most = 0;
      for (std::uint64_t seed = 0; seed < 50; ++seed) {
        const at::Tensor signs = random_signs(64, kProbeVectors, seed, high);
        ErrorSums sums;
        add_projected_error(low, signs, at::mm(high, signs), sums);
        least = std::min(least, sums.error());
        most = std::max(most, sums.error());
      }
      const double error = testing::relative_difference(low, high);
      EXPECT_GT(least, 0.7 * error);
      EXPECT_LT(most, 1.4 * error);
    }
  }
}

TEST(ProductError, AProjectionKnowsHowMuchLargerOrSmallerAResultIs) {
  // One direction is as good as all there is: a projection of it has any length.
  const at::Tensor high = at::outer(normal({200}, 1), normal({64}, 2)) + 0.001 * normal({200, 64}, 3);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const at::Tensor signs = random_signs(64, kProbeVectors, seed, high);
    const auto error_of = [&](const at::Tensor& low) {
      ErrorSums sums;
      add_projected_error(low, signs, at::mm(high, signs), sums);
      return sums.error();
    };
    // What is off in that one direction is seen by its projection alone: of the right size, no more.
    for (const double factor : {1e4, 64.0, 0.25, 1.01}) {
      const double error = std::abs(factor - 1);
      EXPECT_GT(error_of(high * factor), 0.2 * error) << factor;
      EXPECT_LT(error_of(high * factor), 3 * error) << factor;
    }
    EXPECT_LT(error_of(high + 0.001 * high.abs().max() * normal({200, 64}, seed)), 0.1) << "a dense small error";
    EXPECT_NEAR(error_of(at::zeros_like(high)), 1, 1e-6);
  }
}

TEST(ProductError, SignsAreEven) {
  const at::Tensor signs = random_signs(1000, 3, 5, at::zeros({1}));
  EXPECT_TRUE((signs.abs() == 1).all().item<bool>());
  EXPECT_LT(std::abs(signs.sum().item<double>()), 200);
  EXPECT_TRUE(same_bits(signs, random_signs(1000, 3, 5, signs)));
  EXPECT_FALSE(same_bits(signs, random_signs(1000, 3, 6, signs)));
}

TEST(ProductError, OfRowsOfTokensIsThatOfTheWholeResult) {
  const at::Tensor left = normal({3000, 48}, 1);
  const at::Tensor weight = normal({64, 48}, 2);
  const at::Tensor high = at::mm(left, weight.t());
  const auto error_of = [&](const at::Tensor& low, std::uint64_t seed) {
    ErrorSums sums;
    add_rows_error(low, left, weight.t(), seed, sums);
    return sums.error();
  };
  at::Tensor three_rows = high.clone();
  for (const std::int64_t row : {11, 1500, 2999}) three_rows[row] *= 30;
  at::Tensor column = high.clone();
  column.select(1, 9) *= 2;
  const at::Tensor dense = high + 0.05 * high.std() * normal({3000, 64}, 3);
  const at::Tensor of_rank_one = high + at::outer(normal({3000}, 4), normal({64}, 5));
  for (const at::Tensor& low : {three_rows, column, dense, of_rank_one}) {
    const double error = testing::relative_difference(low, high);
    double sum = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      sum += error_of(low, seed) / 50;
      EXPECT_GT(error_of(low, seed), 0.1 * error);
      EXPECT_LT(error_of(low, seed), 3 * error);
    }
    EXPECT_NEAR(sum / error, 1, 0.2);
  }
  EXPECT_LT(error_of(high, 1), 1e-5);
  at::Tensor broken = high.clone();
  broken[2998][1] = std::nan("");
  EXPECT_EQ(error_of(broken, 1), kInfinity);
}

TEST(ProductError, TheExpectedErrorIsWhatRoundingDoes) {
  for (const char* name : {"fp8-tensorwise", "fp8-rowwise", "fp8-deepseek", "mxfp8"}) {
    SmallModel model;
    RecoverableUnits units(model, builtin(name), {});
    units.begin_step(1, PassKind::trial);
    model.run(5);
    const std::vector<double> errors = units.errors(units.error_sums());
    const std::vector<double> expected = units.expected_errors();
    for (std::size_t index = 0; index < errors.size(); ++index) {
      if (index == 1) continue;  // the stem's input needs no gradient
      EXPECT_GT(errors[index], 0.2 * expected[index % 3]) << name << " " << index;
      EXPECT_LT(errors[index], 3 * expected[index % 3]) << name << " " << index;
    }
  }
  EXPECT_EQ(recipes::expected_error(*builtin("int4-act"), Product::forward), 0) << "depends on the data";
  EXPECT_EQ(recipes::expected_error(*builtin("nvfp4"), Product::forward), 0);
}

/// The gradients of a model, all in a row.
at::Tensor all_gradients(const SmallModel& model) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model.parameters()) gradients.push_back(parameter.grad().flatten());
  return at::cat(gradients);
}

TEST(Trial, RunsHighAndMeasuresEachLowPathBesideIt) {
  SmallModel plain;
  plain.run(5);
  SmallModel model;
  RecoverableUnits units(model, builtin("fp8-tensorwise"), {.save_in_8_bits = true});
  CuttingHook hook(Site::in_cast, 2);  // layers.0.down
  units.set_hook(&hook);
  units.begin_step(1, PassKind::trial);
  model.run(5);
  EXPECT_TRUE(same_bits(all_gradients(model), all_gradients(plain)));
  const std::vector<double> errors = units.errors(units.error_sums());
  ASSERT_EQ(errors.size(), units.units().size() * kProductCount);
  for (std::size_t unit = 0; unit < units.units().size(); ++unit) {
    const std::string& name = units.units()[unit].name;
    const double* const of_unit = errors.data() + unit * kProductCount;
    if (name.ends_with(".saved")) {
      EXPECT_TRUE(std::isnan(of_unit[0]) && std::isnan(of_unit[1])) << name;
      EXPECT_GT(of_unit[2], 0.005) << name;
      EXPECT_LT(of_unit[2], 0.05) << name;
      continue;
    }
    for (std::size_t product = 0; product < kProductCount; ++product) {
      if (name == "stem" && product == 1) continue;  // its input needs no gradient
      const bool faulty = name == "layers.0.down" && product != 1;
      EXPECT_GT(of_unit[product], faulty ? 0.3 : 0.003) << name << product;
      EXPECT_LT(of_unit[product], faulty ? 2 : 0.15) << name << product;
    }
  }
  for (const LowPathCall& call : hook.calls) EXPECT_TRUE(call.rerun);
}

TEST(Trial, ItsErrorsAreThoseOfTheWholeProducts) {
  SmallModel model;
  RecoverableUnits units(model, builtin("int4-act"), {.allow = {"stem"}});
  units.begin_step(1, PassKind::trial);
  model.run(5);
  const std::vector<double> errors = units.errors(units.error_sums());
  const at::Tensor input = normal({5, 6}, 5);
  const auto recipe = builtin("int4-act");
  const auto cast = [&](std::size_t place, const at::Tensor& matrix) {
    const auto& rule = recipe->rule(Product::forward, place);
    return rule ? cast_operand(matrix, {.rule = *rule}) : matrix;
  };
  const at::Tensor low = cast(0, input).mm(cast(1, model.stem->weight.detach()).t());
  const at::Tensor high = input.mm(model.stem->weight.t());
  EXPECT_NEAR(errors[0], testing::relative_difference(low, high), 1e-6);
}

TEST(Patrol, MeasuresWhatATrialWouldAndChangesNothing) {
  for (const bool saves : {false, true}) {
    SmallModel plain;
    RecoverableUnits unwatched(plain, builtin("fp8-tensorwise"), {.save_in_8_bits = saves});
    SmallModel model;
    RecoverableUnits units(model, builtin("fp8-tensorwise"), {.save_in_8_bits = saves});
    CuttingHook hook(Site::after_product, 3);  // layers.1.up
    units.set_hook(&hook);
    unwatched.set_hook(&hook);
    units.patrol(100, 5);  // all layers: so small a product costs less than its check
    unwatched.begin_step(1);
    units.begin_step(1);
    plain.run(5);
    model.run(5);
    EXPECT_TRUE(same_bits(all_gradients(model), all_gradients(plain)));
    for (const double sum : unwatched.error_sums()) EXPECT_EQ(sum, 0);
    const std::vector<double> errors = units.errors(units.error_sums());
    for (std::size_t unit = 0; unit < units.units().size(); ++unit) {
      const std::string& name = units.units()[unit].name;
      if (name == "stem" || name.ends_with(".saved")) continue;
      for (std::size_t product = 0; product < kProductCount; ++product) {
        const double error = errors[unit * kProductCount + product];
        EXPECT_GT(error, name == "layers.1.up" ? 0.3 : 0.002) << name << product;
        EXPECT_LT(error, name == "layers.1.up" ? 20 : 0.2) << name << product;
      }
    }
  }
}

TEST(Patrol, StaysWithinItsShareAndComesToEveryLayer) {
  SmallModel model;
  RecoverableUnits units(model, builtin("fp8-tensorwise"), {});
  EXPECT_EQ(units.patrol_text(), "no patrol");
  units.patrol(1, 100000);
  EXPECT_EQ(units.patrol_text().rfind("all 5 layers each step, ", 0), 0u) << units.patrol_text();
  units.patrol(1e-9, 5);
  EXPECT_EQ(units.patrol_text().rfind("each of 5 layers every 5 steps, ", 0), 0u) << units.patrol_text();
  std::vector<int> seen(units.units().size(), 0);
  for (std::int64_t step = 1; step <= 10; ++step) {
    units.begin_step(step);
    model.run(5);
    const std::vector<double> errors = units.errors(units.error_sums());
    for (std::size_t unit = 0; unit < seen.size(); ++unit) seen[unit] += std::isnan(errors[unit * 3]) ? 0 : 1;
  }
  EXPECT_EQ(seen, (std::vector<int>{2, 2, 2, 2, 2}));
  units.patrol(0, 5);
  EXPECT_EQ(units.patrol_text(), "no patrol");
}

TEST(Patrol, LeavesUnitsInRecoveryOut) {
  SmallModel model;
  RecoverableUnits units(model, builtin("fp8-tensorwise"), {});
  units.patrol(100, 5);  // all layers: so small a product costs less than its check
  units.request(std::vector<UnitIndex>{1});
  units.begin_step(1);
  model.run(5);
  const std::vector<double> errors = units.errors(units.error_sums());
  for (std::size_t product = 0; product < kProductCount; ++product) EXPECT_TRUE(std::isnan(errors[3 + product]));
  EXPECT_FALSE(std::isnan(errors[6]));
}

TEST(Patrol, SumsOfRanksAndBlocksAddUp) {
  SmallModel model;
  RecoverableUnits units(model, builtin("fp8-tensorwise"), {.granularity = Granularity::block});
  CuttingHook hook(Site::in_cast, 2);  // layers.0.down
  units.set_hook(&hook);
  units.begin_step(1, PassKind::trial);
  model.run(5);
  std::vector<double> sums = units.error_sums();
  const std::vector<double> errors = units.errors(sums);
  for (double& sum : sums) sum *= 2;
  const std::vector<double> doubled = units.errors(sums);
  for (std::size_t index = 0; index < errors.size(); ++index) {
    if (std::isnan(errors[index])) continue;
    EXPECT_NEAR(doubled[index], errors[index], 1e-12);
  }
  const auto block = static_cast<std::size_t>(std::find_if(units.units().begin(), units.units().end(),
                                                           [](const Unit& unit) { return unit.name == "layers.0"; }) -
                                              units.units().begin());
  EXPECT_GT(errors[block * 3], 0.3) << "the worst of its layers";
  EXPECT_THROW(units.errors(std::vector<double>(3)), Error);
}

TEST(LowPathHook, ATransientChangeIsGoneInARerun) {
  SmallModel model;
  RecoverableUnits units(model, builtin("fp8-tensorwise"), {});
  CuttingHook hook(Site::before_cast, 1);
  hook.only_first_runs = true;
  units.set_hook(&hook);
  units.begin_step(1);
  model.run(5);
  const std::size_t calls = hook.calls.size();
  EXPECT_GT(calls, 0u);
  units.begin_step(1, PassKind::trial);
  model.run(5);
  EXPECT_EQ(hook.calls.size(), calls);
  for (const double error : units.errors(units.error_sums())) {
    if (std::isnan(error)) continue;
    EXPECT_LT(error, 0.15);
  }
}

TEST(LowPathHook, CannotReachAHighPath) {
  SmallModel plain;
  plain.run(5);
  SmallModel model;
  RecoverableUnits units(model, builtin("fp8-tensorwise"), {});
  CuttingHook hook(Site::after_product, 1);
  units.set_hook(&hook);
  units.request(std::vector<UnitIndex>{0, 1, 2, 3, 4});
  units.begin_step(1);
  model.run(5);
  EXPECT_TRUE(hook.calls.empty());
  EXPECT_TRUE(same_bits(all_gradients(model), all_gradients(plain)));
}

}  // namespace
}  // namespace gnmr::nn
