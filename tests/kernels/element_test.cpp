// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/element.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace gnmr::kernels {
namespace {

TEST(Element, ReadsHalves) {
  EXPECT_EQ(value_of_half(0x3c00), 1.0);
  EXPECT_EQ(value_of_half(0xc000), -2.0);
  EXPECT_EQ(value_of_half(0x7bff), 65504.0);
  EXPECT_EQ(value_of_half(0x0001), 0x1p-24);
  EXPECT_EQ(value_of_half(0x03ff), 1023 * 0x1p-24);
  EXPECT_EQ(value_of_half(0x0400), 0x1p-14);
  EXPECT_EQ(value_of_half(0xfc00), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(value_of_half(0x7e00)));
}

TEST(Element, RoundsToTheNearestBfloat16) {
  EXPECT_EQ(bfloat16_of(1.0f), 0x3f80);
  EXPECT_EQ(bfloat16_of(1.0f + 0x1p-8f), 0x3f80);            // a tie goes to the even one
  EXPECT_EQ(bfloat16_of(1.0f + 0x1p-7f + 0x1p-8f), 0x3f82);  // likewise
  EXPECT_EQ(bfloat16_of(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);
  EXPECT_EQ(bfloat16_of(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(bfloat16_of(-std::numeric_limits<float>::infinity()), 0xff80);
  EXPECT_EQ(bfloat16_of(std::numeric_limits<float>::quiet_NaN()) & 0x7fff, 0x7fc0);
}

TEST(Element, WritesAndReads) {
  std::array<float, 3> floats{};
  store_element(floats.data(), 1, ElementType::float32, 0.1);
  EXPECT_EQ(floats[1], 0.1f);
  EXPECT_EQ(load_element(floats.data(), 1, ElementType::float32), static_cast<double>(0.1f));
  std::array<std::uint16_t, 3> halves{};
  store_element(halves.data(), 2, ElementType::bfloat16, -0.1);
  EXPECT_EQ(halves[2], 0xbdcd);
  EXPECT_EQ(load_element(halves.data(), 2, ElementType::bfloat16), -0.10009765625);
}

}  // namespace
}  // namespace gnmr::kernels
