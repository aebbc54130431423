// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/thin_loops.h"

#include <cstddef>
#include <cstring>

#include "gnmr/core/for_each_machine.h"

namespace gnmr::low {
namespace {

constexpr std::int64_t kLanes = 16;  // the order of additions is the same on all machines

// Arrays in registers, which the compiler makes of what each machine has.
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));
using HalfLanes = float __attribute__((vector_size(kLanes / 2 * sizeof(float))));
using QuarterLanes = float __attribute__((vector_size(kLanes / 4 * sizeof(float))));

inline __attribute__((always_inline)) float total(const Lanes& lanes) {
  HalfLanes halves[2];
  std::memcpy(halves, &lanes, sizeof lanes);
  halves[0] += halves[1];
  QuarterLanes quarters[2];
  std::memcpy(quarters, halves, sizeof quarters);
  quarters[0] += quarters[1];
  return (quarters[0][0] + quarters[0][2]) + (quarters[0][1] + quarters[0][3]);
}

template <std::int64_t kVectors>
inline __attribute__((always_inline)) void dot(const Rows& rows, std::int64_t first, std::int64_t last,
                                               const float* __restrict__ vectors, float* __restrict__ results) {
  for (std::int64_t row = first; row < last; ++row) {
    const float* __restrict__ const values = rows.at(row);
    Lanes sums[static_cast<std::size_t>(kVectors)] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= rows.width; i += kLanes) {
      Lanes value;
      std::memcpy(&value, values + i, sizeof value);
      for (std::int64_t k = 0; k < kVectors; ++k) {
        Lanes vector;
        std::memcpy(&vector, vectors + k * rows.width + i, sizeof vector);
        sums[k] += value * vector;
      }
    }
    float rest[static_cast<std::size_t>(kVectors)] = {};
    for (; i < rows.width; ++i) {
      for (std::int64_t k = 0; k < kVectors; ++k) rest[k] += values[i] * vectors[k * rows.width + i];
    }
    for (std::int64_t k = 0; k < kVectors; ++k) results[row * kVectors + k] = total(sums[k]) + rest[k];
  }
}

/// Sums of rows, each times `kVectors` coefficients of its own; a block of columns at a time, which stays in registers.
template <std::int64_t kVectors>
inline __attribute__((always_inline)) void add(const Rows& rows, std::int64_t first, std::int64_t last,
                                               const float* __restrict__ coefficients, float* __restrict__ sums) {
  constexpr std::int64_t kBlock = 32;
  std::int64_t column = 0;
  for (; column + kBlock <= rows.width; column += kBlock) {
    float block[static_cast<std::size_t>(kVectors)][kBlock] = {};
    for (std::int64_t row = first; row < last; ++row) {
      const float* __restrict__ const values = rows.at(row) + column;
      for (std::int64_t k = 0; k < kVectors; ++k) {
        const float coefficient = coefficients[row * kVectors + k];
        for (std::int64_t i = 0; i < kBlock; ++i) block[k][i] += coefficient * values[i];
      }
    }
    for (std::int64_t k = 0; k < kVectors; ++k) {
      for (std::int64_t i = 0; i < kBlock; ++i) sums[k * rows.width + column + i] = block[k][i];
    }
  }
  for (; column < rows.width; ++column) {
    float block[static_cast<std::size_t>(kVectors)] = {};
    for (std::int64_t row = first; row < last; ++row) {
      for (std::int64_t k = 0; k < kVectors; ++k) {
        block[k] += coefficients[row * kVectors + k] * rows.at(row)[column];
      }
    }
    for (std::int64_t k = 0; k < kVectors; ++k) sums[k * rows.width + column] = block[k];
  }
}

}  // namespace

GNMR_FOR_EACH_MACHINE
void dot_rows(const Rows& rows, std::int64_t first, std::int64_t last, std::int64_t count, const float* vectors,
              float* results) {
  switch (count) {
    case 1:
      return dot<1>(rows, first, last, vectors, results);
    case 2:
      return dot<2>(rows, first, last, vectors, results);
    case 3:
      return dot<3>(rows, first, last, vectors, results);
    default:
      return dot<4>(rows, first, last, vectors, results);
  }
}

GNMR_FOR_EACH_MACHINE
void add_rows(const Rows& rows, std::int64_t first, std::int64_t last, std::int64_t count, const float* coefficients,
              float* sums) {
  switch (count) {
    case 1:
      return add<1>(rows, first, last, coefficients, sums);
    case 2:
      return add<2>(rows, first, last, coefficients, sums);
    case 3:
      return add<3>(rows, first, last, coefficients, sums);
    default:
      return add<4>(rows, first, last, coefficients, sums);
  }
}

}  // namespace gnmr::low
