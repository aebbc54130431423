// SPDX-License-Identifier: Apache-2.0
// Casts against the slow reference, the table of tests/assets/out_of_range.md, and what must hold of any rounding.
#include "gnmr/formats/cast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "formats/sample_values.h"
#include "gnmr/formats/cast_runs.h"

namespace gnmr::formats {
namespace {

using testing::kAllFormats;
using testing::same;
using testing::same_code;
using testing::sample_values;

std::vector<std::uint32_t> codes_of(const Cast& cast, const std::vector<float>& values, const Kernels& kernels) {
  const CastRuns runs(cast, kernels);
  if (cast.format == Format::bfloat16) {
    std::vector<std::uint16_t> codes(values.size());
    runs.encode(values.data(), values.size(), cast.first_index, codes.data());
    return {codes.begin(), codes.end()};
  }
  std::vector<std::uint8_t> codes(values.size());
  runs.encode(values.data(), values.size(), cast.first_index, codes.data());
  return {codes.begin(), codes.end()};
}

std::vector<float> rounded(const Cast& cast, std::vector<float> values, Statistics* statistics = nullptr) {
  round_values(cast, values, values, statistics);
  return values;
}

TEST(Cast, EveryKernelAgreesWithTheReference) {
  const KernelList list = available_kernels();
  for (const Format format : kAllFormats) {
    const std::vector<float> values = sample_values(format, 3000);
    for (const Rounding rounding : {Rounding::nearest_even, Rounding::stochastic}) {
      for (const Overflow overflow : {Overflow::saturate, Overflow::non_finite}) {
        const Cast cast{
            .format = format, .rounding = rounding, .overflow = overflow, .seed = 11, .first_index = 0xffffff00u};
        for (std::size_t k = 0; k < list.count; ++k) {
          const std::vector<std::uint32_t> codes = codes_of(cast, values, *list.kernels[k]);
          std::vector<float> cast_values(values.size());
          CastRuns(cast, *list.kernels[k]).round(values.data(), values.size(), cast.first_index, cast_values.data());
          for (std::size_t i = 0; i < values.size(); ++i) {
            const std::uint32_t expected = reference::encode(cast, values[i], cast.first_index + i);
            ASSERT_TRUE(same_code(format, codes[i], expected))
                << format_name(format) << " " << list.kernels[k]->name << ": " << values[i] << " gave " << codes[i]
                << ", expected " << expected;
            const auto value = static_cast<float>(reference::decode(format, expected));
            ASSERT_TRUE(std::isnan(values[i]) ? std::isnan(cast_values[i]) : same(cast_values[i], value))
                << format_name(format) << " " << list.kernels[k]->name << ": " << values[i] << " became "
                << cast_values[i] << ", expected " << value;
          }
        }
      }
    }
  }
}

TEST(Cast, EveryCodeDecodesAsTheReferenceSays) {
  const KernelList list = available_kernels();
  for (std::size_t k = 0; k < list.count; ++k) {
    for (const Format format : kAllFormats) {
      const std::uint32_t count = 1u << layout_of(format).code_bits;
      std::vector<std::uint8_t> bytes;
      std::vector<std::uint16_t> words;
      for (std::uint32_t code = 0; code < count; ++code) {
        bytes.push_back(static_cast<std::uint8_t>(code));
        words.push_back(static_cast<std::uint16_t>(code));
      }
      std::vector<float> values(count);
      if (format == Format::bfloat16) {
        list.kernels[k]->decode_bfloat16(words.data(), count, values.data());
      } else {
        list.kernels[k]->decode[static_cast<std::size_t>(format)](bytes.data(), count, values.data());
      }
      for (std::uint32_t code = 0; code < count; ++code) {
        ASSERT_TRUE(same(values[code], static_cast<float>(reference::decode(format, code))))
            << format_name(format) << " " << code << " gave " << values[code];
      }
    }
  }
}

/// Cells of a line of a Markdown table, without blanks and quotes.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream stream(line.substr(1));
  for (std::string cell; std::getline(stream, cell, '|');) {
    std::erase_if(cell, [](char c) { return c == ' ' || c == '`'; });
    cells.push_back(cell);
  }
  return cells;
}

TEST(Cast, OutOfRangeIsAsTheTableSays) {
  std::ifstream file(std::string(GNMR_TEST_ASSETS_DIR) + "/out_of_range.md");
  ASSERT_TRUE(file) << "tests/assets/out_of_range.md is missing";
  std::vector<int> rows(kFormatCount);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| `")) continue;
    const std::vector<std::string> cells = cells_of(line);
    ASSERT_EQ(cells.size(), 5u) << line;
    const auto format = find_format(cells[0]);
    ASSERT_TRUE(format) << line;
    const float value = std::strtof(cells[1].c_str(), nullptr);
    for (const Overflow overflow : {Overflow::saturate, Overflow::non_finite}) {
      const std::string& expected = cells[overflow == Overflow::saturate ? 2 : 3];
      const Cast cast{.format = *format, .overflow = overflow};
      const std::uint32_t code = codes_of(cast, {value}, best_kernels())[0];
      if (expected == "NaN") {
        EXPECT_TRUE(std::isnan(reference::decode(*format, code))) << line << " gave " << code;
      } else {
        EXPECT_EQ(code, std::strtoul(expected.c_str(), nullptr, 16)) << line;
      }
      Statistics statistics;
      rounded(cast, {value}, &statistics);
      EXPECT_EQ(statistics.overflowed, cells[4] == "yes" ? 1u : 0u) << line;
    }
    ++rows[static_cast<std::size_t>(*format)];
  }
  for (const Format format : kAllFormats) {
    EXPECT_GE(rows[static_cast<std::size_t>(format)], 5) << "rows of " << format_name(format);
  }
}

TEST(Cast, RoundingTwiceIsRoundingOnce) {
  for (const Format format : kAllFormats) {
    for (const Rounding rounding : {Rounding::nearest_even, Rounding::stochastic}) {
      Cast cast{.format = format, .rounding = rounding, .seed = 3};
      const std::vector<float> once = rounded(cast, sample_values(format, 2000));
      cast.seed = 4;
      const std::vector<float> twice = rounded(cast, once);
      for (std::size_t i = 0; i < once.size(); ++i) ASSERT_TRUE(same(once[i], twice[i])) << once[i];
    }
  }
}

TEST(Cast, RoundingIsMonotoneAndSymmetric) {
  for (const Format format : kAllFormats) {
    std::vector<float> values = sample_values(format, 2000);
    std::erase_if(values, [&](float value) { return std::isnan(value) || (format == Format::e8m0 && !(value > 0)); });
    std::sort(values.begin(), values.end());
    const std::vector<float> results = rounded({.format = format}, values);
    EXPECT_TRUE(std::is_sorted(results.begin(), results.end())) << format_name(format);
    if (format == Format::e8m0) continue;
    std::vector<float> negated = values;
    for (float& value : negated) value = -value;
    const std::vector<float> mirrored = rounded({.format = format}, negated);
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(results[i], -mirrored[i]) << values[i];
  }
}

TEST(Cast, TheErrorIsAtMostHalfAStep) {
  for (const Format format : kAllFormats) {
    if (format == Format::e8m0) continue;
    const Layout layout = layout_of(format);
    const std::vector<float> values = sample_values(format, 2000);
    const std::vector<float> results = rounded({.format = format}, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double magnitude = std::fabs(static_cast<double>(values[i]));
      if (!(magnitude <= layout.max)) continue;
      const int exponent = magnitude == 0 ? layout.min_exponent
                                          : std::clamp(std::ilogb(magnitude), layout.min_exponent, layout.max_exponent);
      const double step = std::ldexp(1.0, exponent - layout.mantissa_bits);
      ASSERT_LE(std::fabs(static_cast<double>(results[i]) - static_cast<double>(values[i])), step / 2) << values[i];
    }
  }
}

TEST(Cast, StatisticsAreWhatAPlainLoopFinds) {
  for (const Format format : kAllFormats) {
    if (format == Format::e8m0) continue;
    for (const Overflow overflow : {Overflow::saturate, Overflow::non_finite}) {
      const Cast cast{.format = format, .overflow = overflow};
      std::vector<float> values = sample_values(format, 500);
      std::erase_if(values, [](float value) { return std::fabs(value) > 1e30f && std::isfinite(value); });
      Statistics found, expected;
      const std::vector<float> results = rounded(cast, values, &found);
      EXPECT_EQ(results.size(), rounded(cast, values).size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (!std::isfinite(values[i])) ++expected.non_finite;
        if (reference::overflows(cast, values[i])) ++expected.overflowed;
        if (std::isfinite(values[i]) && values[i] != 0 && results[i] == 0) ++expected.flushed;
        if (!std::isfinite(values[i]) || !std::isfinite(results[i])) continue;
        const double error = static_cast<double>(results[i]) - static_cast<double>(values[i]);
        expected.squared_error += error * error;
        expected.squared_values += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      }
      EXPECT_EQ(found.elements, values.size());
      EXPECT_EQ(found.non_finite, expected.non_finite);
      EXPECT_EQ(found.overflowed, expected.overflowed) << format_name(format);
      EXPECT_EQ(found.flushed, expected.flushed);
      // The same numbers in another order.
      EXPECT_NEAR(found.squared_error, expected.squared_error, 1e-12 * expected.squared_error);
      EXPECT_NEAR(found.squared_values, expected.squared_values, 1e-12 * expected.squared_values);
      Statistics by_codes;
      if (format == Format::bfloat16) {
        std::vector<std::uint16_t> codes(values.size());
        encode_bfloat16(cast, values, codes, &by_codes);
      } else {
        std::vector<std::uint8_t> codes(values.size());
        encode(cast, values, codes, &by_codes);
      }
      EXPECT_EQ(by_codes.overflowed, expected.overflowed);
      EXPECT_EQ(by_codes.flushed, expected.flushed);
    }
  }
  EXPECT_EQ(Statistics{}.relative_error(), 0);
  EXPECT_DOUBLE_EQ((Statistics{.squared_error = 1, .squared_values = 16}).relative_error(), 0.25);
}

TEST(Cast, AmaxIsOfFiniteValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(finite_amax(std::vector<float>{}), 0);
  EXPECT_EQ(finite_amax(std::vector<float>{nan, -infinity}), 0);
  EXPECT_EQ(finite_amax(std::vector<float>{1, -3, nan, infinity, 2}), 3);
  std::vector<float> many(1003, 0.5f);
  many[1002] = -7;
  EXPECT_EQ(finite_amax(many), 7);
}

TEST(Cast, NamesAreFoundAgain) {
  for (const Format format : kAllFormats) EXPECT_EQ(find_format(format_name(format)), format);
  EXPECT_FALSE(find_format("e4m4"));
}

TEST(Cast, WhatCannotBeIsRefused) {
  std::vector<float> values(3);
  std::vector<std::uint8_t> codes(2);
  EXPECT_THROW(encode({}, values, codes), std::invalid_argument);
  codes.resize(3);
  EXPECT_THROW(encode({.format = Format::bfloat16}, values, codes), std::invalid_argument);
  EXPECT_THROW(decode(Format::bfloat16, codes, values), std::invalid_argument);
}

}  // namespace
}  // namespace gnmr::formats
