// SPDX-License-Identifier: Apache-2.0
#include "gnmr/formats/scaling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>

#include "gnmr/formats/cast_runs.h"
#include "gnmr/formats/group_scale.h"

namespace gnmr::formats {

namespace {

constexpr std::size_t kStripGroups = 4096;      // scales that are kept at a time
constexpr std::size_t kStripElements = 524288;  // are read for their scales and then again, from a cache
constexpr std::size_t kStripLeastCols = 256;

struct Groups {
  std::size_t rows;
  std::size_t cols;
};

Groups groups_of(const Scaling& scaling, std::size_t rows, std::size_t cols) {
  return {scaling.group_rows == 0 ? rows : std::min(scaling.group_rows, rows),
          scaling.group_cols == 0 ? cols : std::min(scaling.group_cols, cols)};
}

std::size_t parts(std::size_t whole, std::size_t part) { return whole == 0 ? 0 : (whole + part - 1) / part; }

void require(bool met, const char* what) {
  if (!met) throw std::invalid_argument(what);
}

void check(const Cast& cast, const Scaling& scaling, ConstMatrix matrix) {
  require(cast.format != Format::e8m0, "[quantise] expected a format with a sign, got e8m0, which is for scales");
  require(matrix.rows <= 1 || matrix.row_stride >= matrix.cols,
          "[quantise] expected a row stride of at least the columns");
  require(scaling.kind != ScaleKind::given || (scaling.scale > 0 && std::isfinite(scaling.scale)),
          "[quantise] expected a given scale that is finite and above 0");
  require(scaling.kind != ScaleKind::nvfp4 || (scaling.scale >= 0 && std::isfinite(scaling.scale)),
          "[quantise] expected a tensor scale that is finite and not negative");
}

/// What values a group holds that have no place in an amax.
struct Contents {
  float finite_amax = 0;
  bool has_nan = false;
  bool has_infinity = false;
};

/// A rectangle of a matrix.
struct Area {
  std::size_t row, row_end, col, col_end;
};

Contents look_through(ConstMatrix matrix, const Area& area) {
  Contents contents;
  for (std::size_t row = area.row; row < area.row_end; ++row) {
    for (std::size_t col = area.col; col < area.col_end; ++col) {
      const float magnitude = std::fabs(matrix.data[row * matrix.row_stride + col]);
      if (std::isnan(magnitude)) {
        contents.has_nan = true;
      } else if (std::isinf(magnitude)) {
        contents.has_infinity = true;
      } else {
        contents.finite_amax = std::max(contents.finite_amax, magnitude);
      }
    }
  }
  return contents;
}

/// Elements that a kernel takes at once: as many whole groups as fit, or a part of one.
struct PieceSize {
  std::size_t cols;
  std::size_t group_size;
};

PieceSize piece_at(std::size_t col, std::size_t col_end, std::size_t group_cols) {
  if (group_cols <= kPieceSize) return {std::min(kPieceSize / group_cols * group_cols, col_end - col), group_cols};
  const std::size_t group_end = std::min((col / group_cols + 1) * group_cols, col_end);
  const std::size_t cols = std::min(kPieceSize, group_end - col);
  return {cols, cols};
}

/// Goes over a matrix strip by strip: scales of the strip's groups first, then its rows piece by piece.
class ScaledPass {
 public:
  ScaledPass(const Cast& cast, const Scaling& scaling, ConstMatrix matrix)
      : cast_(cast),
        rule_{scaling.kind, layout_of(cast.format), scaling.scale},
        matrix_(matrix),
        groups_(groups_of(scaling, matrix.rows, matrix.cols)),
        kernels_(best_kernels()) {
    if (rule_.kind == ScaleKind::nvfp4 && rule_.base_scale == 0) {
      rule_.base_scale = nvfp4_tensor_scale(finite_amax(matrix));
    }
  }

  float tensor_scale() const { return rule_.kind == ScaleKind::nvfp4 ? rule_.base_scale : 1.0f; }

  /// Calls `on_piece(row, col, count, scales)`; `sink` takes the scales where it is not null.
  template <class OnPiece>
  void run(const Quantised* sink, OnPiece on_piece) {
    if (matrix_.rows == 0 || matrix_.cols == 0) return;
    const std::size_t groups_per_row = parts(matrix_.cols, groups_.cols);
    // Columns are long: there the near cache is out of reach, and long pieces of rows are what counts.
    const std::size_t least_cols = groups_.cols == 1 ? kStripGroups : kStripLeastCols;
    const std::size_t wanted_cols = std::max(kStripElements / groups_.rows, least_cols);
    const std::size_t strip_groups = std::clamp<std::size_t>(wanted_cols / groups_.cols, 1, kStripGroups);
    for (std::size_t row = 0; row < matrix_.rows; row += groups_.rows) {
      for (std::size_t group = 0; group < groups_per_row; group += strip_groups) {
        const Area strip{row, std::min(row + groups_.rows, matrix_.rows), group * groups_.cols,
                         std::min((group + strip_groups) * groups_.cols, matrix_.cols)};
        find_scales(strip);
        if (sink != nullptr) store_scales(*sink, row / groups_.rows * groups_per_row + group, strip);
        go_through(strip, on_piece);
      }
    }
  }

 private:
  void find_scales(const Area& strip) {
    const std::size_t count = parts(strip.col_end - strip.col, groups_.cols);
    std::fill_n(amax_bits_.begin(), count, 0u);
    // A given scale depends on the values only if it must mark a NaN.
    if (rule_.kind != ScaleKind::given || !rule_.layout.has_nan()) {
      for (std::size_t row = strip.row; row < strip.row_end; ++row) {
        kernels_.raise_amax(matrix_.data + row * matrix_.row_stride + strip.col, strip.col_end - strip.col,
                            groups_.cols, amax_bits_.data());
      }
    }
    group_scales(rule_, amax_bits_.data(), count, scales_.data(), codes_.data());
    for (std::size_t group = 0; group < count; ++group) {
      if (amax_bits_[group] < kInfinityBits) continue;
      const GroupScale found = scale_of_unusual(strip, group);
      scales_[group] = found.scale;
      codes_[group] = found.code;
    }
  }

  GroupScale scale_of_unusual(const Area& strip, std::size_t group) const {
    const std::size_t col = strip.col + group * groups_.cols;
    const Contents contents =
        look_through(matrix_, {strip.row, strip.row_end, col, std::min(col + groups_.cols, strip.col_end)});
    const bool is_lost = contents.has_nan || (contents.has_infinity && cast_.overflow == Overflow::non_finite);
    if (is_lost && !rule_.layout.has_nan()) return nan_group_scale(rule_.kind);
    return group_scale(rule_, contents.finite_amax);
  }

  void store_scales(const Quantised& sink, std::size_t first, const Area& strip) const {
    const std::size_t count = parts(strip.col_end - strip.col, groups_.cols);
    std::copy_n(scales_.begin(), count, sink.scales + first);
    if (sink.scale_codes != nullptr) std::copy_n(codes_.begin(), count, sink.scale_codes + first);
  }

  template <class OnPiece>
  void go_through(const Area& strip, OnPiece& on_piece) const {
    for (std::size_t row = strip.row; row < strip.row_end; ++row) {
      for (std::size_t col = strip.col; col < strip.col_end;) {
        const PieceSize piece = piece_at(col, strip.col_end, groups_.cols);
        on_piece(row, col, piece.cols, GroupScales{&scales_[(col - strip.col) / groups_.cols], piece.group_size});
        col += piece.cols;
      }
    }
  }

  const Cast& cast_;
  ScaleRule rule_;
  ConstMatrix matrix_;
  Groups groups_;
  const Kernels& kernels_;
  std::array<std::uint32_t, kStripGroups> amax_bits_;
  std::array<float, kStripGroups> scales_;
  std::array<std::uint8_t, kStripGroups> codes_;
};

/// Whether one group is the whole of a matrix without gaps, which then is a single row.
bool is_one_run(const Scaling& scaling, ConstMatrix matrix) {
  return scaling.group_rows == 0 && scaling.group_cols == 0 && matrix.row_stride == matrix.cols;
}

}  // namespace

std::size_t scale_count(const Scaling& scaling, std::size_t rows, std::size_t cols) {
  if (rows == 0 || cols == 0) return 0;
  const Groups groups = groups_of(scaling, rows, cols);
  return parts(rows, groups.rows) * parts(cols, groups.cols);
}

float finite_amax(ConstMatrix matrix) {
  if (matrix.row_stride == matrix.cols) return finite_amax(std::span(matrix.data, matrix.rows * matrix.cols));
  float amax = 0;
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    amax = std::max(amax, finite_amax(std::span(matrix.data + row * matrix.row_stride, matrix.cols)));
  }
  return amax;
}

void quantise(const Cast& cast, const Scaling& scaling, ConstMatrix matrix, Quantised& quantised,
              Statistics* statistics) {
  check(cast, scaling, matrix);
  require(cast.format != Format::bfloat16, "[quantise] expected a format of at most 8 bits, got bfloat16");
  const CastRuns runs(cast, best_kernels());
  ScaledPass pass(cast, scaling, matrix);
  quantised.tensor_scale = pass.tensor_scale();
  std::array<float, kPieceSize> divided;
  pass.run(&quantised, [&](std::size_t row, std::size_t col, std::size_t count, GroupScales groups) {
    const float* const values = matrix.data + row * matrix.row_stride + col;
    const std::uint64_t index = cast.first_index + row * matrix.cols + col;
    runs.kernels().divide(values, count, groups, divided.data());
    runs.encode(divided.data(), count, index, quantised.codes + row * quantised.code_stride + col);
    if (statistics != nullptr) runs.round_counted(values, count, index, groups, divided.data(), *statistics);
  });
}

void fake_quantise(const Cast& cast, const Scaling& scaling, ConstMatrix input, Matrix output, Statistics* statistics) {
  check(cast, scaling, input);
  require(input.rows == output.rows && input.cols == output.cols,
          "[fake_quantise] expected an output of the same size");
  require(output.rows <= 1 || output.row_stride >= output.cols,
          "[fake_quantise] expected a row stride of at least the columns");
  if (is_one_run(scaling, input) && is_one_run(scaling, output)) {
    input = {input.data, 1, input.rows * input.cols, input.rows * input.cols};
    output = {output.data, 1, input.cols, input.cols};
  }
  const CastRuns runs(cast, best_kernels());
  ScaledPass pass(cast, scaling, input);
  std::array<float, kPieceSize> originals;
  pass.run(nullptr, [&](std::size_t row, std::size_t col, std::size_t count, GroupScales groups) {
    const float* const values = input.data + row * input.row_stride + col;
    float* const results = output.data + row * output.row_stride + col;
    const std::uint64_t index = cast.first_index + row * input.cols + col;
    if (statistics != nullptr) std::copy_n(values, count, originals.begin());  // `results` may be `values`
    runs.kernels().divide(values, count, groups, results);
    if (statistics == nullptr) {
      runs.round(results, count, index, results);
    } else {
      runs.round_counted(originals.data(), count, index, groups, results, *statistics);
    }
    runs.kernels().multiply(results, count, groups, results);
  });
}

void dequantise(Format format, const Scaling& scaling, const Quantised& quantised, Matrix matrix) {
  check({.format = format}, scaling, matrix);
  require(format != Format::bfloat16, "[dequantise] expected a format of at most 8 bits, got bfloat16");
  if (matrix.rows == 0 || matrix.cols == 0) return;
  const Kernels& kernels = best_kernels();
  const Groups groups = groups_of(scaling, matrix.rows, matrix.cols);
  const std::size_t groups_per_row = parts(matrix.cols, groups.cols);
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    const float* const scales = quantised.scales + row / groups.rows * groups_per_row;
    for (std::size_t col = 0; col < matrix.cols;) {
      const PieceSize piece = piece_at(col, matrix.cols, groups.cols);
      float* const values = matrix.data + row * matrix.row_stride + col;
      kernels.decode[static_cast<std::size_t>(format)](quantised.codes + row * quantised.code_stride + col, piece.cols,
                                                       values);
      kernels.multiply(values, piece.cols, {scales + col / groups.cols, piece.group_size}, values);
      col += piece.cols;
    }
  }
}

void decode_scales(const Scaling& scaling, const std::uint8_t* scale_codes, float tensor_scale, std::size_t count,
                   float* scales) {
  const bool mx = scaling.kind == ScaleKind::mx_floor || scaling.kind == ScaleKind::mx_round_up;
  require(mx || scaling.kind == ScaleKind::nvfp4,
          "[decode_scales] expected mx or nvfp4: other scales are not quantized");
  for (std::size_t i = 0; i < count; ++i) {
    scales[i] =
        mx ? from_format<Format::e8m0>(scale_codes[i]) : from_format<Format::e4m3>(scale_codes[i]) * tensor_scale;
  }
}

}  // namespace gnmr::formats
