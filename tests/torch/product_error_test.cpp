// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gnmr/core/error.h"
#include "gnmr/low/error_sums.h"
#include "gnmr/low/patrol.h"
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

/// The definition, in double: the mean over the rows of min(|difference|^2 / max(|high|^2, median of |high|^2), 16).
double error_by_rows(const at::Tensor& low, const at::Tensor& high) {
  const at::Tensor reference = high.to(at::kDouble).square().sum(1);
  const at::Tensor difference = (low.to(at::kDouble) - high.to(at::kDouble)).square().sum(1);
  const at::Tensor floor = reference.masked_select(reference > 0).median();
  const at::Tensor counted = (reference > 0).logical_or(difference > 0);
  const at::Tensor shares = (difference / at::maximum(reference, floor)).clamp_max(16);
  return std::sqrt(shares.masked_select(counted).mean().item<double>());
}

/// Mean square, least and most error of many patrols.
struct Estimates {
  double mean = 0;  // root of the mean square
  double least = kInfinity;
  double most = 0;
  double zero = 0;  // share of those that are 0
};

template <class Estimate>
Estimates estimates_of(std::uint64_t count, const Estimate& estimate) {
  Estimates all;
  for (std::uint64_t seed = 0; seed < count; ++seed) {
    ErrorSums sums;
    estimate(seed * 0xd1342543de82ef95u + 1, sums);
    const double error = sums.error();
    all.mean += error * error / static_cast<double>(count);
    all.least = std::min(all.least, error);
    all.most = std::max(all.most, error);
    all.zero += error < 1e-4 ? 1.0 / static_cast<double>(count) : 0;
  }
  all.mean = std::sqrt(all.mean);
  return all;
}

TEST(ProductError, IsTheMeanOverTheRowsOfAllMicroBatches) {
  const at::Tensor high = normal({7, 5}, 1);
  const at::Tensor low = high + 0.1 * normal({7, 5}, 2);
  const at::Tensor other_high = 3 * normal({4, 5}, 3);
  const at::Tensor other_low = other_high * 1.5;
  ErrorSums sums;
  EXPECT_TRUE(std::isnan(sums.error()));
  add_error(low, high, sums);
  const double one = error_by_rows(low, high);
  EXPECT_NEAR(sums.error(), one, 1e-5 * one);
  add_error(other_low, other_high, sums);
  const double other = error_by_rows(other_low, other_high);
  EXPECT_NEAR(sums.error(), std::sqrt((7 * one * one + 4 * other * other) / 11), 1e-5);
}

TEST(ProductError, OneRowNeitherHidesNorHidesOthers) {
  const at::Tensor high = normal({100, 64}, 1);
  const auto error_of = [&](const at::Tensor& low, const at::Tensor& of) {
    ErrorSums sums;
    add_error(low, of, sums);
    return sums.error();
  };
  at::Tensor one_off = high.clone();
  one_off[7] *= 1000;
  EXPECT_NEAR(error_of(one_off, high), 0.4, 1e-6) << "a hundredth of the most that a row has";
  // Beside one row that is huge, and exact, an error of all others is as large as it is.
  at::Tensor huge = high.clone();
  huge[7] *= 1e4;
  at::Tensor low = huge + 0.2 * normal({100, 64}, 2);
  EXPECT_NEAR(error_of(low, huge), 0.2, 0.02);
  EXPECT_LT(testing::relative_difference(low, huge), 1e-3);
  // Rows that are tiny beside the others may be lost.
  at::Tensor tiny = high.clone();
  tiny.slice(0, 0, 40) *= 1e-3;
  low = tiny.clone();
  low.slice(0, 0, 40).zero_();
  EXPECT_LT(error_of(low, tiny), 2e-3);
  // Rows of zeros do not count.
  at::Tensor padded = high.clone();
  padded.slice(0, 0, 80).zero_();
  EXPECT_NEAR(error_of(padded * 1.1, padded), error_by_rows(padded * 1.1, padded), 1e-6);
  EXPECT_GT(error_of(padded * 1.1, padded), 0.08);
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
  EXPECT_EQ(both.error(), 0) << "a row that is not a number says nothing of the low path";
  EXPECT_EQ(both.reference, 2);
  ErrorSums none;
  add_error(at::full({3, 2}, std::nan("")), at::full({3, 2}, std::nan("")), none);
  EXPECT_FALSE(none.measured);
  ErrorSums zero;
  add_error(at::zeros({2, 2}), at::zeros({2, 2}), zero);
  EXPECT_EQ(zero.error(), 0);
  add_error(at::ones({2, 2}), at::zeros({2, 2}), zero);
  EXPECT_EQ(zero.error(), kInfinity);
}

TEST(RowProbe, IsRightInTheMeanAndNeverFarOff) {
  const at::Tensor left = normal({3000, 48}, 1);
  const at::Tensor weight = normal({64, 48}, 2);
  const at::Tensor high = at::mm(left, weight.t());
  at::Tensor rows = high.clone();
  rows.slice(0, 0, 3000, 8) = high.roll(1, 0).slice(0, 0, 3000, 8);
  at::Tensor column = high.clone();
  column.select(1, 9) *= 2;
  const at::Tensor small = high + 0.05 * high.std() * normal({3000, 64}, 3);
  const at::Tensor large = high + 0.7 * high.std() * normal({3000, 64}, 4);
  const at::Tensor weaker = 0.25 * high;
  for (const at::Tensor& low : {rows, column, small, large, weaker, 64 * high}) {
    const double error = error_by_rows(low, high);
    const Estimates found =
        estimates_of(100, [&](std::uint64_t seed, ErrorSums& sums) { add_rows_error(low, left, weight, seed, sums); });
    EXPECT_NEAR(found.mean / error, 1, 0.06) << error;
    EXPECT_GT(found.least / error, 0.55) << error;
    EXPECT_LT(found.most / error, 1.6) << error;
  }
  const Estimates exact =
      estimates_of(10, [&](std::uint64_t seed, ErrorSums& sums) { add_rows_error(high, left, weight, seed, sums); });
  EXPECT_LT(exact.most, 1e-5);
}

TEST(RowProbe, KnowsHowMuchLargerOrSmallerAResultOfRankOneIs) {
  // A projection of one direction has any length, but so has that of the high result.
  const at::Tensor left = normal({1000, 1}, 1);
  const at::Tensor weight = normal({64, 1}, 2);
  const at::Tensor high = at::mm(left, weight.t());
  for (const double factor : {64.0, 0.25, 1.01}) {
    const double error = error_by_rows(high * factor, high);
    const Estimates found = estimates_of(
        100, [&](std::uint64_t seed, ErrorSums& sums) { add_rows_error(high * factor, left, weight, seed, sums); });
    // One number decides it, in which chance has no say in the mean alone.
    EXPECT_NEAR(found.mean / error, 1, 0.3) << factor;
    EXPECT_LT(found.most / error, 3.5) << factor;
  }
}

TEST(RowProbe, FindsWrongRowsAsOftenAsTheyAreSampled) {
  constexpr std::int64_t kTokens = 4096, kWrong = 32;
  const at::Tensor left = normal({kTokens, 24}, 1);
  const at::Tensor weight = normal({40, 24}, 2);
  const at::Tensor high = at::mm(left, weight.t());
  at::Tensor low = high.clone();
  for (std::int64_t i = 0; i < kWrong; ++i) low[i * 128 + 5] = -high[i * 128 + 6];
  constexpr std::uint64_t kRuns = 300;
  const Estimates found =
      estimates_of(kRuns, [&](std::uint64_t seed, ErrorSums& sums) { add_rows_error(low, left, weight, seed, sums); });
  // One of 16 rows is looked at, and each part of 16 has at most one wrong one.
  EXPECT_NEAR(found.zero, std::pow(15.0 / 16, kWrong), 0.05);
  EXPECT_NEAR(found.mean / error_by_rows(low, high), 1, 0.1);
}

TEST(RowProbe, OfWeightsGradientsIsTheSame) {
  const at::Tensor gradient = normal({500, 700}, 1);
  const at::Tensor input = normal({500, 60}, 2);
  const at::Tensor high = at::mm(gradient.t(), input);
  at::Tensor rows = high.clone();
  rows.slice(0, 0, 700, 6) *= -1;
  for (const at::Tensor& low : {high + 0.1 * high.std() * normal({700, 60}, 3), rows, high.mul(0.5)}) {
    const double error = error_by_rows(low, high);
    const Estimates found = estimates_of(
        100, [&](std::uint64_t seed, ErrorSums& sums) { add_weight_error(low, gradient, input, seed, sums); });
    EXPECT_NEAR(found.mean / error, 1, 0.06) << error;
    EXPECT_GT(found.least / error, 0.55) << error;
    EXPECT_LT(found.most / error, 1.6) << error;
  }
}

TEST(RowProbe, KnowsWhatIsNotFinite) {
  const at::Tensor left = normal({40, 8}, 1);
  const at::Tensor weight = normal({6, 8}, 2);
  const at::Tensor high = at::mm(left, weight.t());
  at::Tensor broken = high.clone();
  broken[38][1] = std::nan("");
  ErrorSums sums;
  add_rows_error(broken, left, weight, 1, sums);
  EXPECT_EQ(sums.error(), kInfinity);
  at::Tensor bad_left = left.clone();
  bad_left[38][2] = kInfinity;
  ErrorSums without;
  add_rows_error(broken, bad_left, weight, 1, without);
  EXPECT_LT(without.error(), 1e-5) << "the high row is not finite either";
  EXPECT_EQ(without.reference, 39);
  ErrorSums zero;
  add_rows_error(at::zeros_like(high), left, weight, 1, zero);
  EXPECT_NEAR(zero.error(), 0.9, 0.15);
  ErrorSums nothing;
  add_rows_error(at::zeros({0, 6}), at::zeros({0, 8}), weight, 1, nothing);
  EXPECT_FALSE(nothing.measured);
}

TEST(RowProbe, HasTheSameBitsWithAnyNumberOfThreadsAndInAnyOrder) {
  const at::Tensor left = normal({3000, 130}, 1);
  const at::Tensor weight = normal({300, 130}, 2);
  const at::Tensor low = at::mm(left, weight.t()) + 0.1 * normal({3000, 300}, 3);
  const at::Tensor gradient = normal({3000, 300}, 4);
  const at::Tensor low_gradient = at::mm(gradient.t(), left) + normal({300, 130}, 5);
  const auto measure = [&](const at::Tensor& of_left, const at::Tensor& of_low) {
    ErrorSums sums;
    add_rows_error(of_low, of_left, weight, 7, sums);
    add_weight_error(low_gradient, gradient, left, 7, sums);
    return sums;
  };
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const ErrorSums one = measure(left, low);
  at::set_num_threads(3);
  const ErrorSums many = measure(left, low);
  const ErrorSums transposed = measure(left.t().contiguous().t(), low.t().contiguous().t());
  at::set_num_threads(threads);
  EXPECT_EQ(many.difference, one.difference);
  EXPECT_EQ(many.reference, one.reference);
  EXPECT_EQ(transposed.difference, one.difference);
  // Other types are read as they are.
  ErrorSums half;
  ErrorSums as_float;
  const at::Tensor short_low = low.to(at::kBFloat16);
  add_rows_error(short_low, left.to(at::kBFloat16), weight, 7, half);
  add_rows_error(short_low.to(at::kFloat), left.to(at::kBFloat16).to(at::kFloat), weight, 7, as_float);
  EXPECT_EQ(half.difference, as_float.difference);
}

TEST(RowProbe, SignsAreEven) {
  const at::Tensor signs = random_signs(1000, 5);
  EXPECT_TRUE((signs.abs() == 1).all().item<bool>());
  EXPECT_LT(std::abs(signs.sum().item<double>()), 150);
  EXPECT_TRUE(same_bits(signs, random_signs(1000, 5)));
  EXPECT_FALSE(same_bits(signs, random_signs(1000, 6)));
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
  EXPECT_NEAR(errors[0], error_by_rows(low, high), 1e-5);
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
  const auto measured_in = [&](std::int64_t first, std::int64_t last) {
    std::vector<int> seen(units.units().size(), 0);
    for (std::int64_t step = first; step <= last; ++step) {
      units.begin_step(step);
      model.run(5);
      const std::vector<double> errors = units.errors(units.error_sums());
      for (std::size_t unit = 0; unit < seen.size(); ++unit) seen[unit] += std::isnan(errors[unit * 3]) ? 0 : 1;
    }
    return seen;
  };
  EXPECT_EQ(measured_in(low::kSurveySteps - 1, low::kSurveySteps), std::vector<int>(5, 2)) << "all, at first";
  EXPECT_EQ(measured_in(low::kSurveySteps + 1, low::kSurveySteps + 10), std::vector<int>(5, 2)) << "then in turn";
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
