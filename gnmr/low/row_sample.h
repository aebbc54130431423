// SPDX-License-Identifier: Apache-2.0
// A sample of the rows of a matrix, on the host.
//
// Goals: only what is sampled is read; matrices of any type and order. Non-goals: devices with kernels of ours, which
// read the rows where they are.
#pragma once

#include <cstdint>

#include "gnmr/kernels/row_errors.h"
#include "gnmr/low/front_end.h"
#include "gnmr/low/matrix.h"

namespace gnmr::low {

inline std::uint64_t count_of_rows(const Matrix& matrix) { return static_cast<std::uint64_t>(matrix.rows); }

/// The rows of a sample one after the other, in host memory as float32 without gaps in rows; the matrix itself where it
/// is that already. Where only the front end can compute, a number that is not finite spoils its column.
Matrix sampled_rows(const FrontEnd& front_end, const Matrix& matrix, const kernels::RowSample& sample);

/// The same of columns, [rows, sampled columns].
Matrix sampled_columns(const FrontEnd& front_end, const Matrix& matrix, const kernels::RowSample& sample);

}  // namespace gnmr::low
