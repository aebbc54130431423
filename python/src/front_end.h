// SPDX-License-Identifier: Apache-2.0
// gnmr/low/front_end.h with torch from Python: its memory and its GEMMs, by the functions of gnmr.low.front_end.
//
// Goals: no torch is linked or imported here: functions and tensors come from Python. Low paths run without the global
// interpreter lock; each call of a function takes it. Non-goals: arithmetic of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bind.h"
#include "gnmr/low/front_end.h"

namespace gnmr::python {

/// A tensor as a matrix that keeps it alive; None is an undefined one. Two dimensions, or one for a list of numbers.
/// Needs the lock.
low::Matrix matrix_of(nb::handle tensor);

/// The tensor again; None of an undefined matrix. Needs the lock.
nb::object tensor_of(const low::Matrix& matrix);

/// The type of elements that a dtype of torch is. Needs the lock.
low::Type type_of(nb::handle dtype);

/// The front end of a kind of layers.
class PythonFrontEnd final : public low::FrontEnd {
 public:
  /// `functions`: an object with the methods of gnmr.low.front_end.FrontEnd.
  explicit PythonFrontEnd(nb::object functions) : functions_(std::move(functions)) {}

  /// Makes a device the current one, and gives the one that was.
  int exchange_device(int device) const;

  low::Matrix empty(const low::Matrix& like, low::Type type, std::int64_t rows, std::int64_t columns) const override;
  low::Matrix empty_vector(const low::Matrix& like, low::Type type, std::int64_t count) const override;
  low::Matrix host_like() const override { return {}; }
  void zero(const low::Matrix& matrix) const override;
  low::Matrix to_type(const low::Matrix& matrix, low::Type type) const override;
  low::Matrix contiguous(const low::Matrix& matrix) const override;
  low::Matrix copy(const low::Matrix& matrix) const override;
  low::Matrix part(const low::Matrix& matrix, std::int64_t first, std::int64_t rows,
                   std::int64_t columns) const override;
  void copy_into(const low::Matrix& from, const low::Matrix& to) const override;
  low::Matrix some_rows(const low::Matrix& matrix, std::int64_t stride) const override;
  low::Matrix on_host(const low::Matrix& matrix) const override;
  low::Matrix bytes_on_host(const low::Matrix& matrix) const override;
  low::Matrix beside(const low::Matrix& matrix, const low::Matrix& like) const override;
  low::Matrix multiply(const low::Matrix& left, const low::Matrix& right) const override;
  low::Matrix multiply_high(recipes::Product product, const low::Matrix& left, const low::Matrix& right) const override;
  low::Matrix multiply_codes(const low::Fp8Side& left, const low::Fp8Side& right, recipes::Grouping right_grouping,
                             low::Type type, const kernels::Fp8Plan& plan) const override;
  low::Matrix values_of(const low::Fp8Side& side, recipes::Grouping grouping) const override;
  low::Matrix subtract(const low::Matrix& left, const low::Matrix& right) const override;
  std::uint64_t count_differences(const low::Matrix& left, const low::Matrix& right) const override;
  low::Matrix sum_parts(const low::Matrix& matrix, std::int64_t rows) const override;
  low::Matrix multiply_stretches(const low::Matrix& matrix, const std::vector<float>& entries,
                                 std::int64_t size) const override;
  ParallelFor threads(std::int64_t grain) const override;
  void* stream(const low::Matrix& on) const override;
  low::Matrix quantize_by_operators(const low::Matrix& matrix, const low::NumberCast& cast) const override;
  float amax_by_operators(const low::Matrix& matrix) const override;
  double square_by_operators(const low::Matrix& matrix) const override;

 private:
  nb::object functions_;
};

/// While it lives the device of a matrix is the current one.
class OnDeviceOf {
 public:
  OnDeviceOf(const PythonFrontEnd& front_end, const low::Matrix& matrix);
  ~OnDeviceOf();
  OnDeviceOf(const OnDeviceOf&) = delete;
  OnDeviceOf& operator=(const OnDeviceOf&) = delete;

 private:
  const PythonFrontEnd& front_end_;
  int before_ = -1;  // below 0: nothing was changed
};

}  // namespace gnmr::python
