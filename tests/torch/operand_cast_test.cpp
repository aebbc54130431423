// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "formats/sample_values.h"
#include "gnmr/core/error.h"
#include "gnmr/formats/reference.h"
#include "gnmr/low/quantize.h"
#include "torch/low_on_tensors.h"
#include "torch/tensor_testing.h"

namespace gnmr::nn {
namespace {

using formats::Format;
using recipes::CastRule;
using recipes::Grouping;
using testing::normal;
using testing::same_bits;
using testing::Threads;
namespace reference = formats::reference;

constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Grouping kGroupings[] = {Grouping::none, Grouping::tensor, Grouping::delayed, Grouping::row,
                                   Grouping::tile, Grouping::block,  Grouping::mx,      Grouping::nvfp4};
constexpr Format kFormats[] = {Format::e4m3, Format::e5m2, Format::e3m2, Format::e2m3,    Format::e2m1,
                               Format::int8, Format::int4, Format::int3, Format::bfloat16};

bool can_be(Format format, Grouping grouping) {
  if (grouping == Grouping::none) return format == Format::bfloat16;
  return grouping != Grouping::nvfp4 || !formats::layout_of(format).is_integer;
}

/// Every rule without stochastic rounding or transforms that a recipe can have.
std::vector<CastRule> plain_rules() {
  std::vector<CastRule> rules;
  for (const Format format : kFormats) {
    for (const Grouping grouping : kGroupings) {
      if (!can_be(format, grouping)) continue;
      CastRule rule{.format = format, .grouping = grouping};
      rules.push_back(rule);
      rule.overflow = formats::Overflow::non_finite;
      rules.push_back(rule);
      rule.mx_round_up = true;
      if (grouping == Grouping::mx) rules.push_back(rule);
    }
  }
  return rules;
}

/// The groups of a grouping, from its definition: 0 for all.
formats::Scaling naive_scaling(const CastRule& rule, float delayed_scale) {
  using formats::ScaleKind;
  switch (rule.grouping) {
    case Grouping::none:
      return {.kind = ScaleKind::given, .scale = 1};
    case Grouping::delayed:
      return {.kind = ScaleKind::given, .scale = delayed_scale};
    case Grouping::row:
      return {.group_rows = 1};
    case Grouping::tile:
      return {.group_rows = 1, .group_cols = 128};
    case Grouping::block:
      return {.group_rows = 128, .group_cols = 128};
    case Grouping::mx:
      return {
          .kind = rule.mx_round_up ? ScaleKind::mx_round_up : ScaleKind::mx_floor, .group_rows = 1, .group_cols = 32};
    case Grouping::nvfp4:
      return {.kind = ScaleKind::nvfp4, .group_rows = 1, .group_cols = 16};
    case Grouping::tensor:
      break;
  }
  return {};
}

/// Element by element, from the definition of the format and of the scale.
at::Tensor naive_cast(const at::Tensor& matrix, const OperandCast& cast) {
  const bool turned = cast.sum_over == SumOver::rows && !cast.rule.ignores_direction();
  const at::Tensor facing = (turned ? matrix.t() : matrix).contiguous().clone();
  const auto rows = static_cast<std::size_t>(facing.size(0));
  const auto cols = static_cast<std::size_t>(facing.size(1));
  const formats::Scaling scaling = naive_scaling(cast.rule, cast.delayed_scale);
  const formats::Cast how{
      .format = cast.rule.format, .rounding = cast.rule.rounding, .overflow = cast.rule.overflow, .seed = cast.seed};
  const formats::ConstMatrix source{facing.const_data_ptr<float>(), rows, cols, cols};
  at::Tensor result = at::empty_like(facing);
  float* const out = result.mutable_data_ptr<float>();
  std::map<std::pair<std::size_t, std::size_t>, float> scales;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t col = 0; col < cols; ++col) {
      const std::pair group{scaling.group_rows == 0 ? 0 : row / scaling.group_rows,
                            scaling.group_cols == 0 ? 0 : col / scaling.group_cols};
      auto known = scales.find(group);
      if (known == scales.end()) {
        known = scales.emplace(group, reference::scale_at(how, scaling, source, row, col)).first;
      }
      const float divided = source.data[row * cols + col] / known->second;
      const std::uint32_t code = reference::encode(how, divided, row * cols + col);
      out[row * cols + col] =
          std::isnan(divided) ? divided : static_cast<float>(reference::decode(how.format, code)) * known->second;
    }
  }
  return turned ? result.t() : result;
}

/// Gradients as they are: of many sizes, with zeros, denormals, rows of zeros, and an infinity.
at::Tensor rough_matrix(std::int64_t rows, std::int64_t cols) {
  at::Tensor matrix = normal({rows, cols}, 3);
  matrix = matrix * at::exp2(at::randint(-12, 12, {rows, 1}));
  float* const data = matrix.mutable_data_ptr<float>();
  const float special[] = {0.0f, -0.0f, 1e-42f, -1e-39f, 0x1p-127f, 1e-30f, -1e-38f};
  for (std::int64_t index = 0; index < matrix.numel(); index += 11) data[index] = special[index % 7];
  if (rows > 4) matrix[4].zero_();
  return matrix;
}

/// The same with what is not finite.
at::Tensor broken_matrix(std::int64_t rows, std::int64_t cols) {
  at::Tensor matrix = rough_matrix(rows, cols);
  float* const data = matrix.mutable_data_ptr<float>();
  data[cols + 1] = kNan;
  data[matrix.numel() - 1] = kFloatInfinity;
  data[matrix.numel() / 2] = -kFloatInfinity;
  return matrix;
}

const char* text(SumOver direction) { return direction == SumOver::rows ? "rows" : "columns"; }

std::string name_of(const CastRule& rule, SumOver direction) {
  return std::string(formats::format_name(rule.format)) + " grouping " +
         std::to_string(static_cast<int>(rule.grouping)) + (rule.mx_round_up ? " up" : "") +
         (rule.overflow == formats::Overflow::saturate ? " saturate" : " non_finite") + " along " + text(direction);
}

TEST(OperandCast, IsTheReferenceElementByElement) {
  // The larger one is cut into slices, with an end that fills neither a slice nor a group.
  const std::vector<at::Tensor> matrices{rough_matrix(7, 5), broken_matrix(37, 131), rough_matrix(131, 259),
                                         broken_matrix(131, 259)};
  for (CastRule rule : plain_rules()) {
    for (const auto rounding : {formats::Rounding::nearest_even, formats::Rounding::stochastic}) {
      rule.rounding = rounding;
      for (const SumOver direction : {SumOver::columns, SumOver::rows}) {
        for (std::size_t which = 0; which < matrices.size(); ++which) {
          // The slow answer takes its time: chance and overflow are looked at in the small ones.
          const bool plain =
              rounding == formats::Rounding::nearest_even && rule.overflow == formats::Overflow::saturate;
          if (which >= 2 && !plain) continue;
          const at::Tensor before = matrices[which].clone();
          const OperandCast cast{.rule = rule, .sum_over = direction, .delayed_scale = 0.013f, .seed = 77};
          const at::Tensor result = cast_operand(matrices[which], cast);
          ASSERT_TRUE(same_bits(result, naive_cast(before, cast))) << name_of(rule, direction) << " matrix " << which;
          ASSERT_TRUE(same_bits(matrices[which], before)) << "the operand was changed";
        }
      }
    }
  }
}

TEST(OperandCast, NeitherThreadsNorStridesMatter) {
  const at::Tensor wide = rough_matrix(140, 300);
  const at::Tensor matrix = wide.narrow(1, 7, 259).contiguous();
  const at::Tensor stored_by_columns = matrix.t().contiguous().t();
  for (CastRule rule : plain_rules()) {
    rule.rounding = rule.overflow == formats::Overflow::saturate ? formats::Rounding::stochastic : rule.rounding;
    for (const SumOver direction : {SumOver::columns, SumOver::rows}) {
      const OperandCast cast{.rule = rule, .sum_over = direction, .delayed_scale = 0.013f, .seed = 5};
      const Threads one(1);
      const at::Tensor alone = cast_operand(matrix, cast);
      ASSERT_EQ(alone.sizes(), matrix.sizes());
      const Threads two(2);
      ASSERT_TRUE(same_bits(cast_operand(matrix, cast), alone)) << name_of(rule, direction);
      ASSERT_TRUE(same_bits(cast_operand(wide.narrow(1, 7, 259), cast), alone)) << name_of(rule, direction);
      ASSERT_TRUE(same_bits(cast_operand(stored_by_columns, cast), alone)) << name_of(rule, direction);
      ASSERT_FALSE(same_bits(alone, matrix)) << "the cast did nothing";
    }
  }
}

TEST(OperandCast, TorchsOperatorsGiveTheSameBits) {
  for (const at::Tensor& matrix : {rough_matrix(37, 131), broken_matrix(37, 131), rough_matrix(131, 259),
                                   broken_matrix(131, 259), at::zeros({5, 40}), at::full({3, 33}, 3e38f)}) {
    for (CastRule rule : plain_rules()) {
      for (const std::uint32_t hadamard : {0u, 16u}) {
        rule.hadamard = hadamard;
        if (hadamard != 0 && (rule.grouping != Grouping::nvfp4 || !matrix.isfinite().all().item<bool>())) continue;
        for (const SumOver direction : {SumOver::columns, SumOver::rows}) {
          formats::Statistics here;
          formats::Statistics there;
          OperandCast cast{
              .rule = rule, .sum_over = direction, .delayed_scale = 0.013f, .transform_seed = 9, .statistics = &here};
          const at::Tensor ours = cast_operand(matrix, cast);
          cast.statistics = &there;
          const at::Tensor theirs = cast_operand_with_operators(matrix, cast);
          ASSERT_TRUE(same_bits(ours, theirs)) << name_of(rule, direction) << " of " << matrix.sizes();
          EXPECT_EQ(here.elements, there.elements);
          // A group that became NaN is counted as it was before, slice by slice.
          if (!formats::layout_of(rule.format).has_nan() && !matrix.isfinite().all().item<bool>()) continue;
          EXPECT_EQ(here.non_finite, there.non_finite) << name_of(rule, direction);
          EXPECT_EQ(here.overflowed, there.overflowed) << name_of(rule, direction);
          EXPECT_EQ(here.flushed, there.flushed) << name_of(rule, direction);
          EXPECT_NEAR(here.squared_error, there.squared_error, 1e-9 * here.squared_values);
          EXPECT_NEAR(here.squared_values, there.squared_values, 1e-9 * here.squared_values);
        }
      }
    }
  }
  const CastRule stochastic{.rounding = formats::Rounding::stochastic};
  EXPECT_THROW(cast_operand_with_operators(at::ones({2, 2}), {.rule = stochastic}), Error);
}

TEST(OperandCast, MeasuresWhatItDid) {
  const at::Tensor matrix = rough_matrix(131, 259) * 64;
  const CastRule rule{.grouping = Grouping::delayed};
  formats::Statistics seen;
  const at::Tensor result = cast_operand(matrix, {.rule = rule, .delayed_scale = 0.02f, .statistics = &seen});
  const at::Tensor error = matrix.to(at::kDouble) - result.to(at::kDouble);
  EXPECT_EQ(seen.elements, 131u * 259u);
  EXPECT_EQ(seen.non_finite, 0u);
  const double largest = 464 * 0.02;  // what still rounds to 448
  EXPECT_EQ(seen.overflowed, static_cast<std::uint64_t>((matrix.abs() > largest).sum().item<std::int64_t>()));
  const at::Tensor flushed = (matrix != 0).logical_and(result == 0);
  EXPECT_EQ(seen.flushed, static_cast<std::uint64_t>(flushed.sum().item<std::int64_t>()));
  EXPECT_GT(seen.overflowed, 100u);
  EXPECT_GT(seen.flushed, 100u);
  const double squares = (error * error).sum().item<double>();
  EXPECT_NEAR(seen.squared_error, squares, 1e-9 * squares);
}

TEST(OperandCast, TheTransformKeepsProductsAndSpreadsOutliers) {
  at::Tensor left = normal({9, 50}, 1);
  const at::Tensor right = normal({6, 50}, 2);
  left[3][20] = 1000;
  const at::Tensor turned_left = hadamard_transform(left, 16, 5);
  const at::Tensor turned_right = hadamard_transform(right, 16, 5);
  EXPECT_LT(testing::relative_difference(turned_left.mm(turned_right.t()), left.mm(right.t())), 1e-6);
  EXPECT_LT(turned_left[3].abs().max().item<float>(), 300);
  EXPECT_TRUE(at::equal(turned_left.narrow(1, 48, 2), left.narrow(1, 48, 2)));
  EXPECT_FALSE(at::equal(hadamard_transform(right, 16, 6), turned_right)) << "signs come from the seed";
  EXPECT_GT(testing::relative_difference(hadamard_transform(left, 16, 6).mm(turned_right.t()), left.mm(right.t())),
            0.01);
}

TEST(OperandCast, ATransformThatDoesNotFitLeavesTheOperandAlone) {
  const CastRule rule{.format = Format::e2m1, .grouping = Grouping::nvfp4, .hadamard = 16};
  for (const SumOver direction : {SumOver::columns, SumOver::rows}) {
    const at::Tensor matrix = direction == SumOver::columns ? normal({20, 5}, 1) : normal({5, 20}, 1).contiguous();
    const at::Tensor row = normal({1, 5}, 2);
    for (const at::Tensor& operand : {matrix, row, row.t()}) {
      const at::Tensor before = operand.clone();
      const at::Tensor result = cast_operand(operand, {.rule = rule, .sum_over = direction});
      EXPECT_TRUE(same_bits(operand, before));
      EXPECT_EQ(result.sizes(), operand.sizes());
      EXPECT_NE(result.data_ptr(), operand.data_ptr());
    }
  }
}

TEST(OperandCast, EightBitsAreTilesOfE4m3) {
  const CastRule tiles{.grouping = Grouping::tile};
  for (const at::Tensor& matrix : {rough_matrix(131, 259), rough_matrix(259, 131).t(), rough_matrix(1, 3)}) {
    const SavedMatrix saved = save_in_8_bits(matrix);
    EXPECT_EQ(saved.codes.scalar_type(), at::kByte);
    EXPECT_EQ(saved.codes.sizes(), matrix.sizes());
    EXPECT_EQ(saved.scales.size(1), (matrix.size(1) + 127) / 128);
    EXPECT_TRUE(same_bits(restore_from_8_bits(saved), naive_cast(matrix, {.rule = tiles})));
  }
  EXPECT_EQ(restore_from_8_bits(save_in_8_bits(at::empty({0, 7}))).sizes(), (std::vector<std::int64_t>{0, 7}));
}

TEST(OperandCast, LargestFiniteMagnitude) {
  EXPECT_EQ(finite_amax(broken_matrix(131, 259)),
            broken_matrix(131, 259).nan_to_num(0, 0, 0).abs().max().item<float>());
  EXPECT_EQ(finite_amax(at::full({3, 3}, kNan)), 0);
  EXPECT_EQ(finite_amax(at::empty({0, 4})), 0);
  EXPECT_EQ(finite_amax(normal({300, 200}, 1).t()), normal({300, 200}, 1).abs().max().item<float>());
  EXPECT_THROW(cast_operand(at::ones({2, 2}, at::kDouble), {.rule = CastRule{}}), Error);
  EXPECT_THROW(cast_operand(at::ones({2, 2, 2}), {.rule = CastRule{}}), Error);
}

}  // namespace
}  // namespace gnmr::nn
