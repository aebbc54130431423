// SPDX-License-Identifier: Apache-2.0
// Scaled casts against the slow reference, and what must hold of groups, edges and values that are not finite.
#include "gnmr/formats/scaling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "formats/sample_values.h"

namespace gnmr::formats {
namespace {

using testing::kByteFormats;
using testing::Noise;
using testing::same;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Scaling kScalings[] = {kTensorScaling,
                                 kRowScaling,
                                 kColumnScaling,
                                 kTileScaling,
                                 kBlockScaling,
                                 kMxFloorScaling,
                                 kMxRoundUpScaling,
                                 kNvfp4Scaling,
                                 given_scale(0.37f),
                                 {.kind = ScaleKind::mx_floor, .group_rows = 32, .group_cols = 1},
                                 {.group_rows = 3, .group_cols = 50}};

struct Size {
  std::size_t rows, cols;
};

/// A matrix with rows of very different sizes, zeros, and a gap between rows.
struct Sample {
  std::size_t rows, cols, stride;
  std::vector<float> data;

  Sample(Size size, std::uint64_t seed)
      : rows(size.rows), cols(size.cols), stride(size.cols + 3), data(rows * stride, -99.0f) {
    Noise noise(seed);
    for (std::size_t row = 0; row < rows; ++row) {
      const double spread = std::exp2(20 * noise.uniform() - 10);
      for (std::size_t col = 0; col < cols; ++col) {
        at(row, col) = noise.uniform() < 0.1 ? 0.0f : static_cast<float>(spread) * noise.normal();
      }
    }
  }
  float& at(std::size_t row, std::size_t col) { return data[row * stride + col]; }
  Matrix view() { return {data.data(), rows, cols, stride}; }
};

/// Codes and scales with room of their own.
struct Held {
  std::vector<std::uint8_t> codes, scale_codes;
  std::vector<float> scales;
  Quantised view;

  Held(const Scaling& scaling, Size size)
      : codes(size.rows * (size.cols + 1), 0xee),
        scale_codes(scale_count(scaling, size.rows, size.cols)),
        scales(scale_codes.size()),
        view{codes.data(), size.cols + 1, scales.data(), scale_codes.data()} {}
};

void expect_reference(const Cast& cast, const Scaling& scaling, Sample sample, const std::string& what) {
  Sample expected = sample;
  for (std::size_t row = 0; row < sample.rows; ++row) {
    for (std::size_t col = 0; col < sample.cols; ++col) {
      expected.at(row, col) = reference::fake_quantised_at(cast, scaling, sample.view(), row, col);
    }
  }
  Held held(scaling, {sample.rows, sample.cols});
  quantise(cast, scaling, sample.view(), held.view);
  Sample restored = sample;
  dequantise(cast.format, scaling, held.view, restored.view());
  Sample counted = sample;
  Statistics statistics;
  fake_quantise(cast, scaling, sample.view(), counted.view(), &statistics);
  fake_quantise(cast, scaling, sample.view(), sample.view());
  EXPECT_EQ(statistics.elements, sample.rows * sample.cols);
  for (std::size_t i = 0; i < sample.data.size(); ++i) {
    ASSERT_TRUE(same(sample.data[i], expected.data[i]))
        << what << " at " << i << ": " << sample.data[i] << ", expected " << expected.data[i];
    ASSERT_TRUE(same(restored.data[i], expected.data[i])) << what << " by codes at " << i;
    ASSERT_TRUE(same(counted.data[i], expected.data[i])) << what << " with statistics at " << i;
  }
}

TEST(Scaling, EveryKindAgreesWithTheReference) {
  int seed = 0;
  for (const Format format : kByteFormats) {
    for (std::size_t kind = 0; kind < std::size(kScalings); ++kind) {
      for (const Size size : {Size{1, 1}, Size{3, 7}, Size{5, 133}, Size{131, 6}, Size{2, 300}}) {
        const bool by_chance = ++seed % 2 == 0;
        const Cast cast{.format = format,
                        .rounding = by_chance ? Rounding::stochastic : Rounding::nearest_even,
                        .overflow = seed % 3 == 0 ? Overflow::non_finite : Overflow::saturate,
                        .seed = 17,
                        .first_index = 1000};
        Sample sample(size, static_cast<std::uint64_t>(seed));
        const std::string what = std::string(format_name(format)) + " scaling " + std::to_string(kind);
        expect_reference(cast, kScalings[kind], sample, what);
        sample.at(size.rows / 2, size.cols / 2) = kNan;
        expect_reference(cast, kScalings[kind], sample, what + " with NaN");
        sample.at(size.rows / 2, size.cols / 2) = -kInfinity;
        expect_reference(cast, kScalings[kind], sample, what + " with infinity");
      }
    }
  }
}

TEST(Scaling, LongRowsGoPieceByPiece) {
  Noise noise(5);
  for (const std::size_t cols : {1023u, 1024u, 1025u, 2048u, 20000u}) {
    for (const Scaling& scaling : {kTensorScaling, kTileScaling, kMxFloorScaling, kNvfp4Scaling, kColumnScaling}) {
      Sample sample({2, cols}, cols);
      Sample result = sample;
      const Cast cast{.format = Format::e2m1, .rounding = Rounding::stochastic, .seed = 2};
      fake_quantise(cast, scaling, sample.view(), result.view());
      for (int i = 0; i < 50; ++i) {
        const std::size_t row = noise.bits() % 2, col = noise.bits() % cols;
        ASSERT_TRUE(same(result.at(row, col), reference::fake_quantised_at(cast, scaling, sample.view(), row, col)));
      }
    }
  }
}

TEST(Scaling, AmaxBecomesTheLargestValue) {
  for (const Format format : kByteFormats) {
    for (const float amax : {1e-30f, 0.1f, 1.0f, 3.7f, 1e30f}) {
      std::vector<float> values{amax, -amax, amax / 3, 0};
      Held held(kTensorScaling, {1, 4});
      quantise({.format = format}, kTensorScaling, {values.data(), 1, 4, 4}, held.view);
      EXPECT_EQ(reference::decode(format, held.codes[0]), static_cast<double>(layout_of(format).max));
      EXPECT_EQ(reference::decode(format, held.codes[1]), -static_cast<double>(layout_of(format).max));
      EXPECT_EQ(held.scales[0], float32_scale(format, amax));
    }
  }
}

TEST(Scaling, MxRoundUpNeverOverflowsAndIsTheSmallestThatDoesNot) {
  for (const Format format : kByteFormats) {
    Sample sample({20, 64}, 3);
    Statistics statistics;
    Sample result = sample;
    fake_quantise({.format = format}, kMxRoundUpScaling, sample.view(), result.view(), &statistics);
    EXPECT_EQ(statistics.overflowed, 0u) << format_name(format);
    const float max = layout_of(format).max;
    const float inputs[] = {max, std::nextafter(max, kInfinity), 2 * max, 1.0f, 1e-40f};
    for (const float amax : inputs) {
      Held up(kMxRoundUpScaling, {1, 1}), down(kMxFloorScaling, {1, 1});
      quantise({.format = format}, kMxRoundUpScaling, {&amax, 1, 1, 1}, up.view);
      quantise({.format = format}, kMxFloorScaling, {&amax, 1, 1, 1}, down.view);
      EXPECT_LE(amax / up.scales[0], max);
      if (up.scale_codes[0] > 0) {
        EXPECT_GT(amax / (up.scales[0] / 2), max);
      }
      EXPECT_TRUE(down.scales[0] == up.scales[0] || down.scales[0] == up.scales[0] / 2);
      EXPECT_EQ(reference::decode(Format::e8m0, up.scale_codes[0]), static_cast<double>(up.scales[0]));
    }
  }
}

TEST(Scaling, ScalesOfSmallFormatsComeBackFromTheirCodes) {
  for (const Scaling& scaling : {kMxFloorScaling, kMxRoundUpScaling, kNvfp4Scaling}) {
    Sample sample({4, 100}, 8);
    sample.at(1, 3) = kNan;
    Held held(scaling, {4, 100});
    quantise({.format = Format::e2m1}, scaling, sample.view(), held.view);
    std::vector<float> scales(held.scales.size());
    decode_scales(scaling, held.scale_codes.data(), held.view.tensor_scale, scales.size(), scales.data());
    for (std::size_t i = 0; i < scales.size(); ++i) EXPECT_TRUE(same(scales[i], held.scales[i]));
  }
  EXPECT_THROW(decode_scales(kRowScaling, nullptr, 1, 0, nullptr), std::invalid_argument);
}

TEST(Scaling, ZerosHaveScaleOneAndStayZero) {
  for (const Scaling& scaling : kScalings) {
    std::vector<float> zeros(40 * 40, 0.0f);
    Held held(scaling, {40, 40});
    quantise({.format = Format::e2m1}, scaling, {zeros.data(), 40, 40, 40}, held.view);
    for (const float scale : held.scales) {
      EXPECT_EQ(scale, scaling.kind == ScaleKind::given   ? scaling.scale
                       : scaling.kind == ScaleKind::nvfp4 ? 0x1p-9f
                                                          : 1.0f);
    }
    fake_quantise({.format = Format::e2m1}, scaling, {zeros.data(), 40, 40, 40}, {zeros.data(), 40, 40, 40});
    for (const float value : zeros) EXPECT_EQ(value, 0);
  }
}

TEST(Scaling, CutGroupsAreAsIfFilledWithZeros) {
  for (const Scaling& scaling : kScalings) {
    Sample cut({130, 150}, 21);
    Sample whole({256, 384}, 0);
    std::fill(whole.data.begin(), whole.data.end(), 0.0f);
    for (std::size_t row = 0; row < cut.rows; ++row) {
      for (std::size_t col = 0; col < cut.cols; ++col) whole.at(row, col) = cut.at(row, col);
    }
    fake_quantise({.format = Format::e3m2}, scaling, cut.view(), cut.view());
    fake_quantise({.format = Format::e3m2}, scaling, whole.view(), whole.view());
    for (std::size_t row = 0; row < cut.rows; ++row) {
      for (std::size_t col = 0; col < cut.cols; ++col) ASSERT_TRUE(same(whole.at(row, col), cut.at(row, col)));
    }
    EXPECT_EQ(cut.data[cut.cols], -99.0f);  // gaps between rows are not touched
  }
}

TEST(Scaling, SlicesOfRowsGiveTheWhole) {
  const Cast cast{.format = Format::e4m3, .rounding = Rounding::stochastic, .seed = 4};
  for (const Scaling& scaling : {kRowScaling, kTileScaling, kBlockScaling, kMxFloorScaling, kNvfp4Scaling}) {
    Sample sample({256, 70}, 6);
    Sample whole = sample;
    fake_quantise(cast, scaling, sample.view(), whole.view());
    Scaling part_scaling = scaling;
    if (scaling.kind == ScaleKind::nvfp4) part_scaling.scale = nvfp4_tensor_scale(finite_amax(sample.view()));
    for (const std::size_t first : {0u, 128u}) {
      Cast part = cast;
      part.first_index = first * sample.cols;
      const Matrix rows{&sample.at(first, 0), 128, sample.cols, sample.stride};
      fake_quantise(part, part_scaling, rows, rows);
    }
    EXPECT_EQ(sample.data, whole.data);
  }
}

TEST(Scaling, NanIsNeverLost) {
  for (const Format format : kByteFormats) {
    for (const Scaling& scaling : kScalings) {
      Sample sample({40, 140}, 2);
      sample.at(33, 137) = kNan;
      fake_quantise({.format = format}, scaling, sample.view(), sample.view());
      EXPECT_TRUE(std::isnan(sample.at(33, 137))) << format_name(format);
      const bool neighbour_is_nan = std::isnan(sample.at(33, 138)) && std::isnan(sample.at(33, 139));
      if (layout_of(format).has_nan()) {
        EXPECT_FALSE(neighbour_is_nan);
      }
    }
  }
}

TEST(Scaling, HugeAndTinyValuesKeepTheirSize) {
  for (const Format format : kByteFormats) {
    for (const float amax : {3e38f, 1e38f, 1e-33f}) {
      std::vector<float> values{amax, amax / 2, -amax};
      fake_quantise({.format = format}, kRowScaling, {values.data(), 1, 3, 3}, {values.data(), 1, 3, 3});
      EXPECT_NEAR(values[0] / amax, 1, 1e-6) << format_name(format);
      EXPECT_EQ(values[2], -values[0]);
    }
    float smallest = 1e-45f;
    fake_quantise({.format = format}, kRowScaling, {&smallest, 1, 1, 1}, {&smallest, 1, 1, 1});
    EXPECT_EQ(smallest, 0);  // far below the smallest scale
  }
}

TEST(Scaling, Bfloat16AndNoScaling) {
  Sample sample({5, 33}, 1);
  Sample expected = sample;
  const Cast cast{.format = Format::bfloat16};
  round_values(cast, expected.data, expected.data);
  fake_quantise(cast, kNoScaling, sample.view(), sample.view());
  EXPECT_EQ(sample.data, expected.data);
}

TEST(Scaling, StatisticsFollowTheScale) {
  // Under a scale of 2, 1000 is beyond 448 * 2; 0.0009 is less than half of 2^-9 * 2; the others are kept.
  std::vector<float> values{1000, 0.0009f, 2, 0, kNan, -896};
  Statistics statistics;
  fake_quantise({.format = Format::e4m3}, given_scale(2), {values.data(), 1, 6, 6}, {values.data(), 1, 6, 6},
                &statistics);
  EXPECT_EQ(values[0], 896);
  EXPECT_EQ(statistics.elements, 6u);
  EXPECT_EQ(statistics.non_finite, 1u);
  EXPECT_EQ(statistics.overflowed, 1u);
  EXPECT_EQ(statistics.flushed, 1u);
  EXPECT_NEAR(statistics.squared_error, 104.0 * 104.0, 1e-5);
  EXPECT_NEAR(statistics.squared_values, 1000.0 * 1000.0 + 4 + 896.0 * 896.0, 1e-3);
}

TEST(Scaling, EmptyMatricesAndWhatCannotBe) {
  Held none(kTileScaling, {0, 5});
  EXPECT_EQ(scale_count(kTileScaling, 0, 5), 0u);
  EXPECT_EQ(scale_count(kBlockScaling, 129, 257), 6u);
  quantise({}, kTileScaling, {nullptr, 0, 5, 5}, none.view);
  fake_quantise({}, kColumnScaling, {nullptr, 5, 0, 0}, {nullptr, 5, 0, 0});
  std::vector<float> values(10);
  const Matrix matrix{values.data(), 2, 5, 5};
  Held held(kTileScaling, {2, 5});
  EXPECT_THROW(quantise({.format = Format::bfloat16}, kTileScaling, matrix, held.view), std::invalid_argument);
  EXPECT_THROW(quantise({.format = Format::e8m0}, kTileScaling, matrix, held.view), std::invalid_argument);
  EXPECT_THROW(fake_quantise({}, given_scale(0), matrix, matrix), std::invalid_argument);
  EXPECT_THROW(fake_quantise({}, given_scale(kNan), matrix, matrix), std::invalid_argument);
  EXPECT_THROW(fake_quantise({}, kTileScaling, {values.data(), 2, 5, 4}, matrix), std::invalid_argument);
  EXPECT_THROW(fake_quantise({}, kTileScaling, {values.data(), 1, 5, 5}, matrix), std::invalid_argument);
}

}  // namespace
}  // namespace gnmr::formats
