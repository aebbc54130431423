// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/injection/tensor_faults.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "torch/tensor_testing.h"

namespace gnmr::lab {
namespace {

using nn::testing::normal;
using nn::testing::same_bits;
using run::RandomPurpose;
using run::RandomStream;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using Elements = std::vector<float>;

Elements elements_of(const at::Tensor& matrix) {
  const at::Tensor plain = matrix.to(at::kFloat).contiguous();
  const float* const data = plain.const_data_ptr<float>();
  return {data, data + plain.numel()};
}

at::Tensor matrix_of(const Elements& elements, at::IntArrayRef sizes) {
  return at::tensor(elements, at::TensorOptions().dtype(at::kFloat)).reshape(sizes);
}

float plain_largest(const Elements& elements) {
  float largest = 0;
  for (const float value : elements) {
    if (std::isfinite(value) && std::fabs(value) > largest) largest = std::fabs(value);
  }
  return largest;
}

/// Values over many binades, zeros, both infinities and a NaN among them.
at::Tensor rough() {
  at::Tensor matrix = normal({24, 40}, 5);
  matrix = matrix * at::exp2(at::randint(-9, 2, {24, 40}));
  matrix.index_put_({at::tensor({3, 4, 5, 6}), at::tensor({1, 2, 3, 4})},
                    at::tensor({0.0F, kInfinity, -kInfinity, kNaN}));
  return matrix;
}

/// What a loop over the elements makes of it, one at a time, given the largest.
at::Tensor changed_elements(const at::Tensor& matrix, const std::function<float(float value, float largest)>& change) {
  Elements elements = elements_of(matrix);
  const float largest = plain_largest(elements);
  for (float& value : elements) value = change(value, largest);
  return matrix_of(elements, matrix.sizes());
}

/// Every function here, on a matrix.
std::vector<std::function<at::Tensor(const at::Tensor&)>> all_functions() {
  const auto random = [] { return RandomStream(RandomPurpose::fault_details, {1, 2, 3}); };
  return {[](const at::Tensor& matrix) { return cut_at_share(matrix, 1.0 / 64); },
          [](const at::Tensor& matrix) { return cut_at(matrix, 0.5); },
          [](const at::Tensor& matrix) { return multiply_large(matrix, 64); },
          [](const at::Tensor& matrix) { return flush_below_share(matrix, 0.25); },
          [=](const at::Tensor& matrix) {
            RandomStream stream = random();
            return flip_exponent_bits(matrix, 0.25, stream);
          },
          [=](const at::Tensor& matrix) {
            RandomStream stream = random();
            return replace_rows(matrix, 0.125, stream);
          },
          [=](const at::Tensor& matrix) {
            RandomStream stream = random();
            return put_nan(matrix, stream);
          }};
}

TEST(TensorFaults, NeverChangeTheirArgument) {
  for (const at::Tensor& matrix : {rough(), normal({40, 24}, 1).t()}) {
    const at::Tensor before = matrix.clone();
    for (const auto& change : all_functions()) {
      const at::Tensor changed = change(matrix);
      EXPECT_TRUE(same_bits(matrix, before));
      EXPECT_FALSE(same_bits(changed, before));
      EXPECT_FALSE(changed.is_alias_of(matrix));
      EXPECT_EQ(changed.sizes(), matrix.sizes());
      EXPECT_TRUE(same_bits(changed, change(matrix.contiguous()))) << "the layout decides something";
      EXPECT_TRUE(same_bits(changed, change(matrix))) << "it is not a pure function";
    }
  }
}

TEST(TensorFaults, TakeEveryTypeAndNothing) {
  for (const auto& change : all_functions()) {
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kDouble}) {
      const at::Tensor matrix = normal({16, 8}, 2).to(type);
      EXPECT_EQ(change(matrix).scalar_type(), type);
    }
    EXPECT_EQ(change(at::zeros({0, 8})).numel(), 0);
    EXPECT_EQ(change(at::zeros({8, 0})).numel(), 0);
    EXPECT_EQ(change(at::ones({1, 1})).numel(), 1);
  }
}

TEST(TensorFaults, LargestIsFinite) {
  EXPECT_EQ(largest_magnitude(rough()), plain_largest(elements_of(rough())));
  EXPECT_EQ(largest_magnitude(at::zeros({2, 0})), 0);
  EXPECT_EQ(largest_magnitude(at::full({2, 2}, kNaN)), 0);
}

TEST(TensorFaults, Cut) {
  const auto cut = [](float value, float limit) {
    if (std::isnan(value)) return value;
    return value > limit ? limit : value < -limit ? -limit : value;
  };
  for (const float strength : {1.0F, 2.0F, 64.0F}) {
    const at::Tensor expected =
        changed_elements(rough(), [&](float value, float largest) { return cut(value, largest / strength); });
    EXPECT_TRUE(same_bits(cut_at_share(rough(), 1.0 / strength), expected));
  }
  EXPECT_TRUE(same_bits(cut_at(rough(), 0.75),
                        changed_elements(rough(), [&](float value, float) { return cut(value, 0.75F); })));
}

TEST(TensorFaults, MultiplyLarge) {
  for (const float strength : {1.0F, 3.0F, 64.0F}) {
    const at::Tensor expected = changed_elements(
        rough(), [&](float value, float largest) { return std::fabs(value) > largest / 8 ? value * strength : value; });
    EXPECT_TRUE(same_bits(multiply_large(rough(), strength), expected));
  }
}

TEST(TensorFaults, FlushSmall) {
  for (const float share : {1.0F / 256, 0.25F, 1.0F, 7.0F}) {
    const at::Tensor expected = changed_elements(rough(), [&](float value, float largest) {
      return std::fabs(value) < largest * std::min(share, 1.0F) ? 0 : value;
    });
    const at::Tensor changed = flush_below_share(rough(), share);
    EXPECT_TRUE(same_bits(changed, expected));
    EXPECT_EQ(largest_magnitude(changed), largest_magnitude(rough())) << "the largest stays";
  }
}

TEST(TensorFaults, FlipExponentBits) {
  const at::Tensor matrix = rough();
  Elements expected = elements_of(matrix);
  const float largest = plain_largest(expected);
  // The same draws; the code's exponent by taking halves, as one would by hand.
  RandomStream draws(RandomPurpose::fault_details, {4, 5});
  std::vector<unsigned> weights(expected.size(), 0);
  for (std::size_t i = 0; i < expected.size() / 4; ++i) {
    const std::uint64_t element = draws.below(expected.size());
    weights[element] = 1U << draws.below(4);
  }
  std::set<float> factors;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (weights[i] == 0 || expected[i] == 0 || !std::isfinite(expected[i])) continue;
    int exponent = 11;
    for (int top = std::ilogb(largest); exponent > 0 && std::ilogb(expected[i]) < top; --top) --exponent;
    const unsigned flipped = static_cast<unsigned>(exponent) ^ weights[i];
    const float factor = std::exp2(static_cast<float>(flipped) - static_cast<float>(exponent));
    factors.insert(factor);
    expected[i] *= factor;
    EXPECT_LT(std::fabs(expected[i]), 32 * largest);
  }
  EXPECT_EQ(factors.size(), 8U) << "every bit in both directions";
  RandomStream random(RandomPurpose::fault_details, {4, 5});
  EXPECT_TRUE(same_bits(flip_exponent_bits(matrix, 0.25, random), matrix_of(expected, matrix.sizes())));
}

TEST(TensorFaults, ReplaceRows) {
  const at::Tensor matrix = normal({64, 5}, 8);
  RandomStream random(RandomPurpose::fault_details, {7});
  const at::Tensor changed = replace_rows(matrix, 0.125, random);
  int replaced = 0;
  int negative = 0;
  for (std::int64_t row = 0; row < 64; ++row) {
    if (same_bits(changed[row], matrix[row])) continue;
    ++replaced;
    bool found = false;
    for (std::int64_t source = 0; source < 64; ++source) {
      if (source == row) continue;
      found = found || same_bits(changed[row], matrix[source]);
      if (!same_bits(changed[row], -matrix[source])) continue;
      found = true;
      ++negative;
    }
    EXPECT_TRUE(found) << "row " << row;
  }
  EXPECT_EQ(replaced, 8);
  EXPECT_GT(negative, 0);
  EXPECT_LT(negative, 8);
  // All of them, and where there is no other.
  EXPECT_EQ((replace_rows(matrix, 3, random) == matrix).all(1).sum().item<std::int64_t>(), 0);
  EXPECT_TRUE(same_bits(replace_rows(matrix.narrow(0, 0, 1), 0.125, random), -matrix.narrow(0, 0, 1)));
}

TEST(TensorFaults, PutNan) {
  const at::Tensor matrix = normal({9, 7}, 8);
  RandomStream random(RandomPurpose::fault_details, {7});
  std::set<std::int64_t> places;
  for (int i = 0; i < 20; ++i) {
    const at::Tensor changed = put_nan(matrix, random);
    ASSERT_EQ(changed.isnan().sum().item<std::int64_t>(), 1);
    EXPECT_EQ((changed == matrix).sum().item<std::int64_t>(), matrix.numel() - 1);
    places.insert(changed.isnan().view({-1}).nonzero().item<std::int64_t>());
  }
  EXPECT_GT(places.size(), 10U);
}

}  // namespace
}  // namespace gnmr::lab
