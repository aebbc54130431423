// SPDX-License-Identifier: Apache-2.0
// Our formats against torch's own types of the same name, by their bits. What lies beyond the largest value is left
// out: torch made it NaN until 2.12 and saturates since.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "formats/sample_values.h"
#include "gnmr/formats/cast.h"
#include "torch/low_on_tensors.h"
#include "torch/tensor_testing.h"

namespace gnmr::formats {
namespace {

struct TypePair {
  Format format;
  at::ScalarType type;
};
constexpr TypePair kPairs[] = {{Format::e4m3, at::kFloat8_e4m3fn}, {Format::e5m2, at::kFloat8_e5m2}};

/// Every value, the ties between them, their neighbours, denormals, and a million others, none beyond the largest.
std::vector<float> values_in_range(Format format) {
  std::vector<float> values;
  const float largest = layout_of(format).max;
  for (const float value : testing::sample_values(format, 1000)) {
    if (std::fabs(value) <= largest) values.push_back(value);
  }
  testing::Noise noise(11);
  while (values.size() < 1'000'000) {
    const double exponent = std::log2(largest) - 24 * noise.uniform();
    const auto value = static_cast<float>(std::exp2(exponent) * (noise.bits() % 2 == 0 ? 1 : -1));
    if (std::fabs(value) <= largest) values.push_back(value);
  }
  return values;
}

TEST(TorchTypes, EveryCodeHasTheSameValue) {
  for (const TypePair& pair : kPairs) {
    std::vector<std::uint8_t> codes(256);
    for (std::size_t code = 0; code < codes.size(); ++code) codes[code] = static_cast<std::uint8_t>(code);
    std::vector<float> ours(codes.size());
    decode(pair.format, codes, ours);
    const at::Tensor theirs = at::tensor(codes, at::kByte).view(pair.type).to(at::kFloat);
    EXPECT_TRUE(nn::testing::same_bits(at::tensor(ours), theirs)) << format_name(pair.format);
  }
  std::vector<std::uint8_t> codes(255);
  for (std::size_t code = 0; code < codes.size(); ++code) codes[code] = static_cast<std::uint8_t>(code);
  std::vector<float> ours(codes.size());
  decode(Format::e8m0, codes, ours);
  const at::Tensor theirs = at::tensor(codes, at::kByte).view(at::kFloat8_e8m0fnu).to(at::kFloat);
  EXPECT_TRUE(nn::testing::same_bits(at::tensor(ours), theirs)) << "e8m0";
  const at::Tensor back = at::tensor(ours).to(at::kFloat8_e8m0fnu).view(at::kByte);
  EXPECT_TRUE(at::equal(back, at::tensor(codes, at::kByte))) << "e8m0";
}

TEST(TorchTypes, EveryValueGetsTheSameCode) {
  for (const TypePair& pair : kPairs) {
    const std::vector<float> values = values_in_range(pair.format);
    std::vector<std::uint8_t> codes(values.size());
    encode({.format = pair.format}, values, codes);
    const at::Tensor theirs = at::tensor(values).to(pair.type).view(at::kByte);
    EXPECT_TRUE(at::equal(at::tensor(codes, at::kByte), theirs)) << format_name(pair.format);
    // And so does the cast of an operand with a scale of 1.
    const recipes::CastRule rule{.format = pair.format, .grouping = recipes::Grouping::delayed};
    const at::Tensor matrix = at::tensor(values).view({1000, -1});
    const at::Tensor cast = nn::cast_operand(matrix, {.rule = rule, .delayed_scale = 1});
    EXPECT_TRUE(nn::testing::same_bits(cast, matrix.to(pair.type).to(at::kFloat))) << format_name(pair.format);
  }
}

TEST(TorchTypes, Bfloat16IsTorchs) {
  std::vector<float> values = values_in_range(Format::bfloat16);
  values.push_back(std::numeric_limits<float>::quiet_NaN());
  std::vector<float> rounded(values.size());
  round_values({.format = Format::bfloat16}, values, rounded);
  const at::Tensor theirs = at::tensor(values).to(at::kBFloat16).to(at::kFloat);
  EXPECT_TRUE(nn::testing::same_bits(at::tensor(rounded), theirs));
}

}  // namespace
}  // namespace gnmr::formats
