// SPDX-License-Identifier: Apache-2.0
// Scaled quantization of matrices: groups of elements that share a scale.
//
// Goals: quantise, dequantise, and both at once on float32 ("fake quantise"), for groups of any rectangle: a tensor, a
// row, a column, tiles, blocks, MX, NVFP4. Sizes need not be multiples of a group. Nothing is allocated.
// Non-goals: threads (quantize slices whose first row is a multiple of the group's rows, with `Cast::first_index`),
// transposed storage, swizzled scales, packed codes.
//
// A value is its code times its group's scale. docs/formats.md defines the scale of each kind, of zeros, and of groups
// with NaN or infinity. Errors are std::invalid_argument; nothing has been written then.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gnmr/formats/cast.h"

namespace gnmr::formats {

/// How a group's scale follows from its largest magnitude.
enum class ScaleKind : std::uint8_t {
  given,        // `Scaling::scale`, whatever the values are
  float32,      // the largest magnitude becomes the format's largest value
  mx_floor,     // E8M0: the exponent of the largest magnitude less that of the format's largest value (OCP MX)
  mx_round_up,  // E8M0: the smallest power of two with which nothing overflows
  nvfp4,        // E4M3 under a float32 scale of the whole tensor
};

/// Groups and the kind of their scales.
struct Scaling {
  ScaleKind kind = ScaleKind::float32;
  std::size_t group_rows = 0;  // 0: all rows
  std::size_t group_cols = 0;  // 0: all columns
  float scale = 0;             // `given`: the scale; `nvfp4`: the tensor's scale, 0: from the values
};

inline constexpr Scaling kTensorScaling{};
inline constexpr Scaling kRowScaling{.group_rows = 1};
inline constexpr Scaling kColumnScaling{.group_cols = 1};
inline constexpr Scaling kTileScaling{.group_rows = 1, .group_cols = 128};
inline constexpr Scaling kBlockScaling{.group_rows = 128, .group_cols = 128};
inline constexpr Scaling kMxFloorScaling{.kind = ScaleKind::mx_floor, .group_rows = 1, .group_cols = 32};
inline constexpr Scaling kMxRoundUpScaling{.kind = ScaleKind::mx_round_up, .group_rows = 1, .group_cols = 32};
inline constexpr Scaling kNvfp4Scaling{.kind = ScaleKind::nvfp4, .group_rows = 1, .group_cols = 16};
inline constexpr Scaling kNoScaling{.kind = ScaleKind::given, .scale = 1};

/// One scale for all elements, made elsewhere (see delayed_scaling.h).
constexpr Scaling given_scale(float scale) { return {.kind = ScaleKind::given, .scale = scale}; }

/// Rows of float32 values; `row_stride` counts elements from one row to the next.
struct Matrix {
  float* data = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t row_stride = 0;
};
struct ConstMatrix {
  const float* data = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t row_stride = 0;

  constexpr ConstMatrix() = default;
  constexpr ConstMatrix(const float* first, std::size_t row_count, std::size_t col_count, std::size_t stride)
      : data(first), rows(row_count), cols(col_count), row_stride(stride) {}
  constexpr ConstMatrix(const Matrix& matrix)
      : data(matrix.data), rows(matrix.rows), cols(matrix.cols), row_stride(matrix.row_stride) {}
};

/// Codes and scales of a matrix; the caller owns the arrays. Scales go row by row of groups.
struct Quantised {
  std::uint8_t* codes = nullptr;
  std::size_t code_stride = 0;          // from one row of codes to the next
  float* scales = nullptr;              // one per group: what codes are multiplied with
  std::uint8_t* scale_codes = nullptr;  // E8M0 for mx, E4M3 for nvfp4; may be null
  float tensor_scale = 1;               // written by quantise: that of nvfp4, else 1
};

/// How many scales a matrix has.
std::size_t scale_count(const Scaling& scaling, std::size_t rows, std::size_t cols);

/// The scale of a tensor for nvfp4, from its largest finite magnitude.
float nvfp4_tensor_scale(float tensor_amax);

/// The scale that `float32` gives a group with that largest finite magnitude.
float float32_scale(Format format, float amax);

/// The largest magnitude among the finite values of a matrix; 0 where there is none.
float finite_amax(ConstMatrix matrix);

/// Writes codes and scales; not for bfloat16 and e8m0. `statistics` cost time and are left out where null.
void quantise(const Cast& cast, const Scaling& scaling, ConstMatrix matrix, Quantised& quantised,
              Statistics* statistics = nullptr);

/// Writes code times scale.
void dequantise(Format format, const Scaling& scaling, const Quantised& quantised, Matrix matrix);

/// Writes what quantise and dequantise would leave of the values; bfloat16 is allowed, e8m0 is not. `output` has the
/// same rows and columns and may be the input itself, else they do not overlap.
void fake_quantise(const Cast& cast, const Scaling& scaling, ConstMatrix input, Matrix output,
                   Statistics* statistics = nullptr);

/// Writes the scales that stored scale codes stand for (mx, nvfp4).
void decode_scales(const Scaling& scaling, const std::uint8_t* scale_codes, float tensor_scale, std::size_t count,
                   float* scales);

}  // namespace gnmr::formats
