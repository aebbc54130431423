// SPDX-License-Identifier: Apache-2.0
// How far a GEMM's low path is from its high path, where both results are there; row_probe.h: where only the low one
// is.
//
// An error is judged by rows (gnmr/kernels/row_errors.h): the squared error is the mean over the rows of a share that
// is at most 16.
//
// Goals: nothing from the quantizer, only what every backend has; sums that ranks and micro-batches can add; on a
// device the same sums, added up there without a wait. Non-goals: what error is too large (gnmr/core).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/kernels/row_errors.h"
#include "gnmr/low/front_end.h"
#include "gnmr/low/matrix.h"

namespace gnmr::low {

/// Sums over the micro-batches of one step.
struct ErrorSums {
  double difference = 0;  // shares of rows; infinite where the low result is not finite and the high one is
  double reference = 0;   // rows
  bool measured = false;

  /// The relative error; NaN where nothing was measured.
  double error() const;

  /// Adds what is known of some rows; nothing where nothing is known of any.
  template <class Row>
  void add(std::span<const Row> rows) {
    kernels::ErrorTotals totals{};
    kernels::add_rows(rows, totals);
    difference += totals.difference;
    reference += totals.reference;
    measured = measured || totals.measured > 0;
  }
};

/// Where the sums of one GEMM are: on the host or, where it has an address, in the memory of a device.
struct ErrorPlace {
  ErrorSums* sums = nullptr;
  kernels::TotalsPlace on_device = {};
  kernels::SamplePlace sample = {};
};

/// The sum of the squares of all elements of a matrix in host memory, in double.
double squared_norm(const FrontEnd& front_end, const Matrix& matrix);

/// The same of each row of a matrix in host memory without gaps in rows.
std::vector<double> squared_norms_of_rows(const FrontEnd& front_end, const Matrix& matrix);

/// Adds the squares of all elements to `sum` in the memory of the matrix's device.
void add_square(const FrontEnd& front_end, const Matrix& matrix, double* sum);

/// Adds the difference of two results, of all rows; of 256 where only the front end can compute. Rows whose high result
/// is not finite are left out.
void add_error(const FrontEnd& front_end, const Matrix& low, const Matrix& high, const ErrorPlace& place);

/// A matrix as kernels that add errors read it: float32 or bfloat16 without gaps.
kernels::RowsView rows_view(const Matrix& matrix);

/// Memory for a kernel beside a matrix.
Matrix workspace(const FrontEnd& front_end, std::size_t bytes, const Matrix& like);

}  // namespace gnmr::low
