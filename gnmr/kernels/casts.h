// SPDX-License-Identifier: Apache-2.0
// Quantizes a matrix to FP8 for the GEMMs of a linear layer, both directions from one read.
//
//   CastTask task{.matrix = ..., .type = ..., .rows = m, .columns = n, .groups = CastGroups::tile};
//   task.by_rows = {.codes = ..., .scales = ...};      // for a GEMM that sums over the columns
//   task.by_columns = {.codes = ..., .scales = ...};   // transposed, for a GEMM that sums over the rows
//   cast_to_fp8(task, workspace, stream);              // of cast_workspace_bytes(task)
//
// Goals: data and scales are those of gnmr/formats, byte for byte (nearest even, saturating, a NaN stays one); the
// memory's speed. Passes over the matrix: one for `given`, `tile` and `block`; two for `tensor` and `row`, whose scales
// need all of it first. Nothing waits for the device, and nothing is allocated. Non-goals: other formats, stochastic
// rounding, gaps between rows.
//
// All pointers are to device memory and must live until the stream has passed. Outputs overlap nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gnmr/formats/cast.h"
#include "gnmr/kernels/element.h"

namespace gnmr::kernels {

/// Which elements share a scale, seen from a GEMM: along what it sums over.
enum class CastGroups : std::uint8_t {
  tensor,  // all
  given,   // all, with the scale in `CastTask::given_scale`: delayed scaling
  row,     // a row; transposed, a column
  tile,    // 128 neighbours in a row; transposed, in a column
  block,   // 128 x 128
};

/// What is wanted of one direction. The scales lie as at::_scaled_mm takes them, as an operand [m, k]:
/// one number (tensor, given); m numbers (row); the tiles of all rows, then the next tiles: strides 1 and m (tile);
/// rows of blocks (block).
struct CastOutput {
  std::uint8_t* codes = nullptr;   // null: nothing of this direction is wanted
  float* scales = nullptr;         // null: not wanted
  std::uint64_t scale_stride = 0;  // block: from a row of blocks to the next; 0: no gaps. at::_scaled_mm_v2 wants a
                                   // multiple of four
  formats::Statistics* statistics = nullptr;  // written, not added to; null: not wanted, which is faster. Sums of
                                              // squares are within 2e-6 of themselves, that of errors besides within
                                              // 2^-60 of that of values; the same bits in every run
};

/// One quantization.
struct CastTask {
  const void* matrix = nullptr;              // rows without gaps
  ElementType type = ElementType::bfloat16;  // or float32
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  formats::Format format = formats::Format::e4m3;  // or e5m2
  CastGroups groups = CastGroups::tensor;
  const float* given_scale = nullptr;  // finite and above 0
  CastOutput by_rows = {};             // [rows, columns]
  CastOutput by_columns = {};          // [columns, rows]
  float* amax = nullptr;               // of the finite elements, 0 where there is none; null: not wanted
};

/// How many numbers the scales of a direction are, gaps included.
std::uint64_t scale_count(const CastTask& task, const CastOutput& output, bool is_by_columns);

/// Bytes of device memory that quantization works in; its contents do not matter, and no other stream may use it
/// meanwhile.
std::size_t cast_workspace_bytes(const CastTask& task);

/// Quantizes. Without data in either direction only `amax` is found. The workspace begins at a multiple of 16 bytes. An
/// `Error`, with nothing done, as `check_cast`. A matrix without elements has no data and no scales.
void cast_to_fp8(const CastTask& task, void* workspace, void* stream);

/// Throws `Error` where a task cannot be: an unknown type or format, a missing pointer, a matrix that is too large.
void check_cast(const CastTask& task);

}  // namespace gnmr::kernels
