// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding keeps the mean, and depends on seed and index alone.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "formats/sample_values.h"
#include "gnmr/formats/cast.h"

namespace gnmr::formats {
namespace {

using testing::kAllFormats;
using testing::Noise;

std::vector<float> cast_values(const Cast& cast, std::vector<float> values) {
  round_values(cast, values, values);
  return values;
}

TEST(Stochastic, TheMeanIsKept) {
  constexpr std::size_t kCount = 200000;
  for (const Format format : kAllFormats) {
    const Layout layout = layout_of(format);
    for (const double share : {0.03, 0.5, 0.9}) {
      for (const std::uint32_t code : {0u, layout.max_code / 3, layout.max_code - 1}) {
        const double low = reference::decode(format, code);
        const double high = reference::decode(format, code + 1);
        const auto value = static_cast<float>(low + share * (high - low));
        const double true_share = (static_cast<double>(value) - low) / (high - low);
        const Cast cast{.format = format, .rounding = Rounding::stochastic, .seed = 77 + code};
        std::size_t up = 0;
        for (const float result : cast_values(cast, std::vector<float>(kCount, value))) {
          ASSERT_TRUE(static_cast<double>(result) == low || static_cast<double>(result) == high);
          if (static_cast<double>(result) == high) ++up;
        }
        const double deviation = std::sqrt(true_share * (1 - true_share) / kCount);
        EXPECT_NEAR(static_cast<double>(up) / kCount, true_share, 5 * deviation + 1e-6)
            << format_name(format) << " " << value;
      }
    }
  }
}

TEST(Stochastic, SeedAndIndexDecide) {
  std::vector<float> values(5000);
  Noise noise(1);
  for (float& value : values) value = noise.normal();
  const Cast cast{.format = Format::e2m1, .rounding = Rounding::stochastic, .seed = 5, .first_index = 0xfffff000u};
  const std::vector<float> whole = cast_values(cast, values);
  EXPECT_EQ(whole, cast_values(cast, values));
  Cast other = cast;
  other.seed = 6;
  EXPECT_NE(whole, cast_values(other, values));
  for (const std::size_t cut : {1u, 13u, 4096u, 4099u}) {
    Cast tail = cast;
    tail.first_index += cut;
    const std::vector<float> part =
        cast_values(tail, {values.begin() + static_cast<std::ptrdiff_t>(cut), values.end()});
    EXPECT_EQ(part, std::vector<float>(whole.begin() + static_cast<std::ptrdiff_t>(cut), whole.end())) << cut;
  }
}

TEST(Stochastic, TheFirstBitsNeverChange) {
  // Runs must repeat with later versions: these are part of the definition.
  EXPECT_EQ(random_bits(random_key(0, 0), 0), 0xaa58b289u);
  EXPECT_EQ(random_bits(random_key(1, 0), 1), 0x1c8d700bu);
  EXPECT_EQ(random_bits(random_key(0x123456789abcdef0u, 3), 0xffffffffu), 0xcd09deb5u);
}

TEST(Stochastic, ValuesOfTheFormatStay) {
  for (const Format format : kAllFormats) {
    std::vector<float> values;
    for (std::uint32_t code = 0; code <= layout_of(format).max_code; ++code) {
      values.push_back(static_cast<float>(reference::decode(format, code)));
    }
    EXPECT_EQ(cast_values({.format = format, .rounding = Rounding::stochastic, .seed = 9}, values), values);
  }
}

TEST(Stochastic, NotEvenTheLowestThresholdMovesAValueOfTheFormat) {
  const RandomKey key = random_key(9, 0);
  std::uint32_t index = 0;
  while (random_bits(key, index) >> 8 != 0) ++index;  // one in 2^24 is 0
  for (const Format format : kAllFormats) {
    const auto value = static_cast<float>(reference::decode(format, layout_of(format).max_code / 2));
    const Cast cast{.format = format, .rounding = Rounding::stochastic, .seed = 9, .first_index = index};
    EXPECT_EQ(cast_values(cast, {value})[0], value) << format_name(format);
    EXPECT_GT(cast_values(cast, {value * 1.001f})[0], value * 1.001f) << format_name(format);
  }
}

/// Correlation of two streams of numbers between 0 and 1, in standard deviations of chance.
double correlation(RandomKey first, RandomKey second, std::uint32_t lag) {
  constexpr std::uint32_t kCount = 100000;
  double sum = 0;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    sum += (random_bits(first, i) * 0x1p-32 - 0.5) * (random_bits(second, i + lag) * 0x1p-32 - 0.5);
  }
  return sum * 12 / std::sqrt(static_cast<double>(kCount));
}

TEST(Stochastic, RandomBitsAreBalancedAndUnrelated) {
  for (const std::uint64_t seed : {0u, 1u, 2u, 1000000u}) {
    const RandomKey key = random_key(seed, 0);
    for (const std::uint32_t lag : {1u, 2u, 16u, 128u, 4096u}) EXPECT_LT(std::fabs(correlation(key, key, lag)), 4.5);
    EXPECT_LT(std::fabs(correlation(key, random_key(seed + 1, 0), 0)), 4.5);
    EXPECT_LT(std::fabs(correlation(key, random_key(seed, 1), 0)), 4.5);
    constexpr std::uint32_t kCount = 100000;
    std::vector<double> ones(32), cells(256);
    for (std::uint32_t i = 0; i < kCount; ++i) {
      const std::uint32_t bits = random_bits(key, i);
      for (std::uint32_t bit = 0; bit < 32; ++bit) ones[bit] += (bits >> bit) & 1u;
      ++cells[bits >> 24];
    }
    for (const double count : ones) EXPECT_LT(std::fabs(count - kCount / 2.0) / std::sqrt(kCount / 4.0), 5);
    double chi_squared = 0;
    for (const double count : cells)
      chi_squared += (count - kCount / 256.0) * (count - kCount / 256.0) / (kCount / 256.0);
    EXPECT_LT(chi_squared, 255 + 5 * std::sqrt(2 * 255.0)) << seed;
    EXPECT_GT(chi_squared, 255 - 5 * std::sqrt(2 * 255.0)) << seed;
  }
}

}  // namespace
}  // namespace gnmr::formats
