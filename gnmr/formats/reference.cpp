// SPDX-License-Identifier: Apache-2.0
#include "gnmr/formats/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace gnmr::formats::reference {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Fields of the formats with sign, exponent and mantissa.
struct Fields {
  int exponent_bits;
  int mantissa_bits;
  int bias;
};
Fields fields_of(Format format) {
  switch (format) {
    case Format::e4m3:
      return {4, 3, 7};
    case Format::e5m2:
      return {5, 2, 15};
    case Format::e3m2:
      return {3, 2, 3};
    case Format::e2m3:
      return {2, 3, 1};
    case Format::e2m1:
      return {2, 1, 1};
    default:
      return {8, 7, 127};  // bfloat16
  }
}

int integer_bits(Format format) {
  return format == Format::int8 ? 8 : format == Format::int4 ? 4 : format == Format::int3 ? 3 : 0;
}

/// The finite magnitudes by code, and behind them the one that would come next.
std::vector<double> make_magnitudes(Format format) {
  std::vector<double> values;
  if (integer_bits(format) > 0) {
    for (int value = 0; value <= 1 << (integer_bits(format) - 1); ++value) values.push_back(value);
    return values;
  }
  if (format == Format::e8m0) {
    for (int exponent = -127; exponent <= 128; ++exponent) values.push_back(std::ldexp(1.0, exponent));
    return values;
  }
  const Fields fields = fields_of(format);
  for (std::uint32_t code = 0; code < 1u << (fields.exponent_bits + fields.mantissa_bits); ++code) {
    const double value = decode(format, code);
    if (!std::isfinite(value)) break;
    values.push_back(value);
  }
  const double step = values.back() - values[values.size() - 2];
  values.push_back(values.back() + step);
  return values;
}

const std::vector<double>& magnitudes(Format format) {
  static const std::array<std::vector<double>, kFormatCount> all = [] {
    std::array<std::vector<double>, kFormatCount> made;
    for (int i = 0; i < kFormatCount; ++i) made[static_cast<std::size_t>(i)] = make_magnitudes(static_cast<Format>(i));
    return made;
  }();
  return all[static_cast<std::size_t>(format)];
}

/// The code of the magnitude that the value rounds to; that of the last one stands for all beyond.
std::size_t rounded_code(const Cast& cast, double magnitude, std::uint64_t index) {
  const std::vector<double>& values = magnitudes(cast.format);
  if (magnitude >= values.back()) return values.size() - 1;
  if (magnitude <= values.front()) return 0;
  const auto upper =
      static_cast<std::size_t>(std::upper_bound(values.begin(), values.end(), magnitude) - values.begin());
  const std::size_t lower = upper - 1;
  const double share = (magnitude - values[lower]) / (values[upper] - values[lower]);
  if (cast.rounding == Rounding::stochastic) {
    const RandomKey key = random_key(cast.seed, static_cast<std::uint32_t>(index >> 32));
    const double threshold = std::ldexp(random_bits(key, static_cast<std::uint32_t>(index)) >> 8, -24);
    return threshold < share ? upper : lower;
  }
  if (cast.format == Format::e8m0) return share >= 0.5 || (lower == 0 && share > 0) ? upper : lower;
  if (share != 0.5) return share > 0.5 ? upper : lower;
  return upper % 2 == 0 ? upper : lower;
}

bool has_no_code(Format format, float value) { return std::isnan(value) || (format == Format::e8m0 && !(value > 0)); }

struct Group {
  std::size_t row, row_end, col, col_end;
};

Group group_at(const Scaling& scaling, ConstMatrix matrix, std::size_t row, std::size_t col) {
  const std::size_t rows = scaling.group_rows == 0 ? matrix.rows : scaling.group_rows;
  const std::size_t cols = scaling.group_cols == 0 ? matrix.cols : scaling.group_cols;
  const std::size_t first_row = row / rows * rows;
  const std::size_t first_col = col / cols * cols;
  return {first_row, std::min(first_row + rows, matrix.rows), first_col, std::min(first_col + cols, matrix.cols)};
}

struct Largest {
  float amax = 0;
  bool nan = false;
  bool infinity = false;
};

Largest largest_in(ConstMatrix matrix, const Group& group) {
  Largest largest;
  for (std::size_t row = group.row; row < group.row_end; ++row) {
    for (std::size_t col = group.col; col < group.col_end; ++col) {
      const float value = matrix.data[row * matrix.row_stride + col];
      if (std::isnan(value)) largest.nan = true;
      if (std::isinf(value)) largest.infinity = true;
      if (std::isfinite(value)) largest.amax = std::max(largest.amax, std::fabs(value));
    }
  }
  return largest;
}

float mx_scale(ScaleKind kind, double amax, double max) {
  if (amax == 0) return 1;
  int exponent = -127;
  if (kind == ScaleKind::mx_floor) {
    exponent = std::max(exponent, std::ilogb(amax) - std::ilogb(max));
  } else {
    while (std::ldexp(max, exponent) < amax) ++exponent;
  }
  return static_cast<float>(std::ldexp(1.0, std::min(exponent, 127)));
}

float nvfp4_scale(float tensor_scale, float amax, float max) {
  const std::uint32_t code = encode({.format = Format::e4m3}, amax / max / tensor_scale);
  return static_cast<float>(decode(Format::e4m3, std::max(code, 1u))) * tensor_scale;
}

}  // namespace

double decode(Format format, std::uint32_t code) {
  if (format == Format::e8m0) return code == 255 ? kNan : std::ldexp(1.0, static_cast<int>(code) - 127);
  if (const int bits = integer_bits(format); bits > 0) {
    const int value = static_cast<int>(code);
    return value < 1 << (bits - 1) ? value : value - (1 << bits);
  }
  const Fields fields = fields_of(format);
  const int mantissa = static_cast<int>(code & ((1u << fields.mantissa_bits) - 1u));
  const int exponent = static_cast<int>((code >> fields.mantissa_bits) & ((1u << fields.exponent_bits) - 1u));
  const bool negative = ((code >> (fields.mantissa_bits + fields.exponent_bits)) & 1u) != 0;
  const bool last = exponent == (1 << fields.exponent_bits) - 1;
  double value =
      exponent == 0 ? std::ldexp(mantissa, 1 - fields.bias - fields.mantissa_bits)
                    : std::ldexp(mantissa + (1 << fields.mantissa_bits), exponent - fields.bias - fields.mantissa_bits);
  if (format == Format::e4m3 && last && mantissa == 7) value = kNan;
  if ((format == Format::e5m2 || format == Format::bfloat16) && last) value = mantissa == 0 ? HUGE_VAL : kNan;
  return negative ? -value : value;
}

bool overflows(const Cast& cast, float value, std::uint64_t index) {
  if (has_no_code(cast.format, value)) return false;
  return rounded_code(cast, std::fabs(static_cast<double>(value)), index) == magnitudes(cast.format).size() - 1;
}

std::uint32_t encode(const Cast& cast, float value, std::uint64_t index) {
  const Layout layout = layout_of(cast.format);
  if (has_no_code(cast.format, value)) return layout.nan_code;
  auto code = static_cast<std::uint32_t>(rounded_code(cast, std::fabs(static_cast<double>(value)), index));
  if (overflows(cast, value, index)) code = overflow_target(cast.format, cast.overflow).code;
  if (!std::signbit(value) || cast.format == Format::e8m0) return code;
  if (layout.is_integer) return code == 0 ? 0 : (1u << layout.code_bits) - code;
  return code | 1u << (layout.code_bits - 1);
}

float scale_at(const Cast& cast, const Scaling& scaling, ConstMatrix matrix, std::size_t row, std::size_t col) {
  const Layout layout = layout_of(cast.format);
  const Largest largest = largest_in(matrix, group_at(scaling, matrix, row, col));
  const bool is_known =
      layout.has_nan() || !(largest.nan || (largest.infinity && cast.overflow == Overflow::non_finite));
  if (!is_known) return std::numeric_limits<float>::quiet_NaN();
  if (scaling.kind == ScaleKind::given) return scaling.scale;
  if (scaling.kind == ScaleKind::float32) {
    return largest.amax == 0 ? 1 : std::max(largest.amax / layout.max, std::numeric_limits<float>::min());
  }
  if (scaling.kind != ScaleKind::nvfp4) return mx_scale(scaling.kind, largest.amax, layout.max);
  const float amax = largest_in(matrix, {0, matrix.rows, 0, matrix.cols}).amax;
  const float own_scale = amax == 0 ? 1 : std::max(amax / 2688.0f, 0x1p-117f);
  return nvfp4_scale(scaling.scale > 0 ? scaling.scale : own_scale, largest.amax, layout.max);
}

float fake_quantised_at(const Cast& cast, const Scaling& scaling, ConstMatrix matrix, std::size_t row,
                        std::size_t col) {
  const float scale = scale_at(cast, scaling, matrix, row, col);
  const float divided = matrix.data[row * matrix.row_stride + col] / scale;
  if (std::isnan(divided)) return divided;
  const std::uint32_t code = encode(cast, divided, cast.first_index + row * matrix.cols + col);
  return static_cast<float>(decode(cast.format, code)) * scale;
}

}  // namespace gnmr::formats::reference
