// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/casts_reference.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/random_run.h"
#include "gnmr/core/error.h"
#include "gnmr/formats/reference.h"

namespace gnmr::kernels {
namespace {

using formats::Format;
using gnmr::testing::Random;

constexpr std::uint64_t kRows = 150;
constexpr std::uint64_t kColumns = 261;

/// Values of many sizes, with some of those that are easily forgotten.
std::vector<float> random_matrix(ElementType type) {
  Random random(3);
  std::vector<float> values(kRows * kColumns);
  for (float& value : values) {
    value = static_cast<float>(random.normal() * std::exp2(random.uniform(-8, 8)));
    if (random.chance(0.01)) {
      value = random.pick({0.0f, -0.0f, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN(), 1e-40f, -3e38f});
    }
    if (type == ElementType::bfloat16) {
      value = std::bit_cast<float>(static_cast<std::uint32_t>(bfloat16_of(value)) << 16);
    }
  }
  return values;
}

formats::Scaling scaling_of(CastGroups groups) {
  switch (groups) {
    case CastGroups::tensor:
      return formats::kTensorScaling;
    case CastGroups::given:
      return formats::given_scale(0.03f);
    case CastGroups::row:
      return formats::kRowScaling;
    case CastGroups::tile:
      return formats::kTileScaling;
    case CastGroups::block:
      break;
  }
  return formats::kBlockScaling;
}

/// Where a scale of a matrix [rows, columns] with groups along its columns lies.
std::size_t place_of_scale(CastGroups groups, std::uint64_t rows, std::uint64_t stride, std::uint64_t row,
                           std::uint64_t column) {
  switch (groups) {
    case CastGroups::tensor:
    case CastGroups::given:
      return 0;
    case CastGroups::row:
      return row;
    case CastGroups::tile:
      return column / 128 * rows + row;  // strides 1 and rows
    case CastGroups::block:
      break;
  }
  return row / 128 * stride + column / 128;
}

class CastReference : public ::testing::TestWithParam<CastGroups> {};

TEST_P(CastReference, IsTheFormatsReferenceBothWays) {
  const float given = 0.03f;
  for (const ElementType type : {ElementType::float32, ElementType::bfloat16}) {
    const std::vector<float> values = random_matrix(type);
    std::vector<std::byte> stored(values.size() * bytes_of(type));
    std::vector<float> turned(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      store_element(stored.data(), i, type, static_cast<double>(values[i]));
      turned[i % kColumns * kRows + i / kColumns] = values[i];
    }
    for (const Format format : {Format::e4m3, Format::e5m2}) {
      std::vector<std::uint8_t> codes[2] = {std::vector<std::uint8_t>(values.size()),
                                            std::vector<std::uint8_t>(values.size())};
      formats::Statistics seen[2];
      float amax = -1;
      CastTask task{.matrix = stored.data(),
                    .type = type,
                    .rows = kRows,
                    .columns = kColumns,
                    .format = format,
                    .groups = GetParam(),
                    .given_scale = &given,
                    .by_rows = {.codes = codes[0].data(), .statistics = &seen[0]},
                    .by_columns = {.codes = codes[1].data(), .statistics = &seen[1]},
                    .amax = &amax};
      if (GetParam() == CastGroups::block) task.by_columns.scale_stride = 4;
      std::vector<float> scales[2] = {std::vector<float>(scale_count(task, task.by_rows, false)),
                                      std::vector<float>(scale_count(task, task.by_columns, true))};
      task.by_rows.scales = scales[0].data();
      task.by_columns.scales = scales[1].data();
      reference_cast(task);
      EXPECT_EQ(amax, type == ElementType::float32 ? 3e38f : std::bit_cast<float>(0x7f620000u));
      const formats::Cast cast{.format = format};
      for (int side = 0; side < 2; ++side) {
        const std::uint64_t rows = side == 0 ? kRows : kColumns;
        const std::uint64_t columns = side == 0 ? kColumns : kRows;
        const formats::ConstMatrix matrix(side == 0 ? values.data() : turned.data(), rows, columns, columns);
        const std::uint64_t stride = side == 0 ? 3 : 4;
        EXPECT_EQ(seen[side].elements, values.size());
        float scale = 0;
        for (std::uint64_t row = 0; row < rows; row += 7) {
          for (std::uint64_t column = 0; column < columns; ++column) {
            // The slow answer looks through the whole group.
            const bool is_new = column % 128 == 0 && (GetParam() != CastGroups::tensor || (row == 0 && column == 0));
            if (is_new) scale = formats::reference::scale_at(cast, scaling_of(GetParam()), matrix, row, column);
            ASSERT_EQ(scales[side][place_of_scale(GetParam(), rows, stride, row, column)], scale);
            const float value = matrix.data[row * columns + column];
            ASSERT_EQ(codes[side][row * columns + column], formats::reference::encode(cast, value / scale, 0) |
                                                               (std::isnan(value) && std::signbit(value) ? 128u : 0u))
                << side << ' ' << row << ' ' << column << ' ' << value;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, CastReference,
                         ::testing::Values(CastGroups::tensor, CastGroups::given, CastGroups::row, CastGroups::tile,
                                           CastGroups::block));

TEST(CastTasks, FindsTheLargestMagnitudeAlone) {
  const std::vector<float> values{1, -3, std::numeric_limits<float>::infinity(), 2};
  float amax = 0;
  reference_cast({.matrix = values.data(), .type = ElementType::float32, .rows = 2, .columns = 2, .amax = &amax});
  EXPECT_EQ(amax, 3);
}

TEST(CastTasks, RefusesWhatCannotBeCast) {
  float number = 1;
  std::uint8_t code = 0;
  const CastTask good{
      .matrix = &number, .type = ElementType::float32, .rows = 1, .columns = 1, .by_rows = {.codes = &code}};
  EXPECT_NO_THROW(check_cast(good));
  CastTask bad = good;
  bad.type = ElementType::float16;
  EXPECT_THROW(check_cast(bad), Error);
  bad = good;
  bad.format = Format::e2m1;
  EXPECT_THROW(check_cast(bad), Error);
  bad = good;
  bad.groups = CastGroups::given;
  EXPECT_THROW(check_cast(bad), Error);
  bad = good;
  bad.rows = std::uint64_t{1} << 24;
  EXPECT_THROW(check_cast(bad), Error);
  bad = good;
  bad.matrix = nullptr;
  EXPECT_THROW(check_cast(bad), Error);
  bad = good;
  bad.groups = CastGroups::block;
  bad.columns = 300;
  bad.by_rows.scale_stride = 2;
  EXPECT_THROW(check_cast(bad), Error);
}

}  // namespace
}  // namespace gnmr::kernels
