// SPDX-License-Identifier: Apache-2.0
// How far a low result is from a high one, row by row: in full, or for a sample of rows from products with signs.
//
//   full:    add_error(low, high, place, workspace, stream);
//   patrol:  multiply_signs(weight, {...}, workspace, stream);      // W v and W^T s, one pass over the weight
//            add_sampled_rows({low, left, right_signs, sign_seed, sample_seed}, place, stream);
//            judge_samples(slots, count, stream);                   // all samples of a step at once
//
// A row's share is min(|difference|^2 / max(|high|^2, floor), 16), where the floor is the median of |high|^2 over the
// rows: one row that is far off shows, and rows that are tiny beside the others do not count for more than these. What
// is added up is the sum of the shares and the number of rows, so that the quotient is the squared error.
//
// Of sampled rows, the low ones are read, and what the high ones would be is known by projections on signs: the
// difference is that of the projections; the size of the high row is that of the low one, times how much longer its
// projections are. That factor is the median over the rows, so that chance does not enter; a row with a factor of its
// own (more than 16 times away from it) has that.
//
// Goals: the same on the host (row_errors_reference.cpp, which gnmr/low uses too) and on the device; few launches; one
// pass over the memory; the same bits in every run; nothing waits for the device and nothing is allocated. Non-goals:
// gaps between rows, float16, what error is too large.
//
// All pointers of kernels are to device memory and must live until the stream has passed; a workspace begins at a
// multiple of 16 bytes, its contents do not matter, and no other stream may use it meanwhile. An `Error`, with nothing
// done, for another type than float32 or bfloat16, an address that is missing or not aligned as its elements are, or
// 2^24 rows or columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gnmr/kernels/element.h"

namespace gnmr::kernels {

/// Sums that calls add to, in device memory; all 0 at first. Sums of ranks are sums of the members.
struct ErrorTotals {
  double difference;  // shares of rows; infinite where the low result is not finite and the high one is
  double reference;   // rows that have one
  double measured;    // comparisons that were added; 0: nothing is known
};

/// Where the sums of one GEMM are on a device, and a number that is 0 between calls.
struct TotalsPlace {
  ErrorTotals* totals = nullptr;
  std::uint32_t* ticket = nullptr;
};

/// A matrix without gaps, row by row.
struct RowsView {
  const void* data = nullptr;
  ElementType type = ElementType::bfloat16;  // or float32
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
};

inline constexpr std::uint64_t kSampledRows = 256;

/// Vectors of signs for rows of a result. For rows of a weight's gradient there are more: often its error has one
/// direction, so that all rows see it through the same vectors, and chance does not average out over rows.
inline constexpr std::uint64_t kSignVectors = 2;
inline constexpr std::uint64_t kOutputSignVectors = 4;
inline constexpr double kMostOfRow = 16;  // what a row's share may be

/// The most rows that follow each other in a sample: single tokens, and runs of outputs, which are columns of the
/// gradient that is read.
inline constexpr std::uint64_t kRunOfTokens = 1;
inline constexpr std::uint64_t kRunOfOutputs = 16;

/// Whether a sign is plus: bits of a splitmix64 of the seed.
bool is_plus(std::uint64_t seed, std::uint64_t index);

/// Which rows are sampled: a pure function of its members. All where there are 256 or less; else one run at a random
/// place in each of 256 / run parts of equal size.
struct RowSample {
  std::uint64_t seed = 0;
  std::uint64_t rows = 0;
  std::uint64_t run = kRunOfTokens;

  constexpr std::uint64_t count() const { return rows < kSampledRows ? rows : kSampledRows; }
  /// Row `index` of the sample; `rows` and above: none, where the last run is cut off.
  std::uint64_t row(std::uint64_t index) const;
};

/// What is known of a row.
struct ComparedRow {
  double difference;  // squared; not finite: the low row is not
  double reference;   // squared norm of the high row; not finite: nothing is known
};

/// What is known of a sampled row: its size, and means over the vectors of signs.
struct ProjectedRow {
  double size;        // squared norm of the low row
  double low;         // square of its projection
  double high;        // that of the high row
  double difference;  // square of the difference of both
};

/// Adds rows to totals on the host. Adds nothing where nothing is known of any.
void add_rows(std::span<const ComparedRow> rows, ErrorTotals& totals);
void add_rows(std::span<const ProjectedRow> rows, ErrorTotals& totals);

/// Bytes of workspace for `add_error`.
std::size_t add_error_workspace_bytes(std::uint64_t rows);

/// Adds all rows of two results of one shape; differences are rounded to float32. The two may have different types.
void add_error(const RowsView& low, const RowsView& high, const TotalsPlace& place, void* workspace, void* stream);

/// Which products of a matrix with vectors of signs are wanted. Vector k has sign vectors * index + k of its seed.
struct SignProducts {
  std::uint64_t vectors = kSignVectors;  // or kOutputSignVectors, of rows only
  std::uint64_t by_columns_seed = 0;     // signs for columns
  float* of_rows = nullptr;              // becomes [k * rows + row]; null: not wanted
  std::uint64_t by_rows_seed = 0;        // signs for rows
  float* of_columns = nullptr;           // becomes [k * columns + column]; null: not wanted
};

/// Bytes of workspace for `multiply_signs`.
std::size_t multiply_signs_workspace_bytes(const RowsView& matrix, std::uint64_t vectors);

/// One pass over the matrix.
void multiply_signs(const RowsView& matrix, const SignProducts& products, void* workspace, void* stream);

/// Where the sampled rows of one GEMM wait to be judged, in device memory; all bytes 0 at first.
struct SampleSlot {
  struct Row {
    double size;                     // squared norm of the low row
    float low[kOutputSignVectors];   // its projections
    float high[kOutputSignVectors];  // those of the high row
  };
  std::uint32_t count;    // rows; 0: none wait
  std::uint32_t vectors;  // of signs
  ErrorTotals* totals;
  std::uint32_t tickets[kSampledRows / kRunOfOutputs];  // 0 between calls
  Row rows[kSampledRows];
};

/// A slot in which no rows wait, and the totals that they are added to when they are judged.
struct SamplePlace {
  SampleSlot* slot = nullptr;
  ErrorTotals* totals = nullptr;
};

/// A sample of the rows of a low result [rows, n] of left [rows, m] x right [m, n].
struct SampledRows {
  RowsView low;
  RowsView left;
  const float* right_signs = nullptr;  // right x signs: [k * m + i]
  std::uint64_t signs_seed = 0;        // of the signs for columns of `low`
  std::uint64_t sample_seed = 0;
};

void add_sampled_rows(const SampledRows& rows, const SamplePlace& place, void* stream);

/// A sample of the rows of a weight's low gradient [n, m], of gradient^T [n, tokens] x input [tokens, m].
struct SampledOutputs {
  RowsView low;
  RowsView gradient;                   // [tokens, n]
  const float* input_signs = nullptr;  // input x kOutputSignVectors of signs: [k * tokens + token]
  std::uint64_t signs_seed = 0;        // of the signs for columns of `low`
  std::uint64_t sample_seed = 0;
};

/// Bytes of workspace for `add_sampled_outputs`.
std::size_t sampled_outputs_workspace_bytes(std::uint64_t tokens);
void add_sampled_outputs(const SampledOutputs& outputs, const SamplePlace& place, void* workspace, void* stream);

/// Judges the samples that wait in these slots; after it none do.
void judge_samples(SampleSlot* slots, std::uint64_t count, void* stream);

/// Throws `Error` where a matrix cannot be read.
void check_rows(const RowsView& view);

}  // namespace gnmr::kernels
