// SPDX-License-Identifier: Apache-2.0
// Quantizes arrays to a number format and back, without scales.
//
// Goals: plain functions on plain arrays; the same bits on every machine; what falls outside a format is the caller's
// choice and can be counted. Non-goals: scales (scaling.h), packing two codes into a byte, threads: every function
// works on its arguments alone, so slices may be quantized at the same time (see `Cast::first_index`).
//
// One code takes one byte, bfloat16 two. Errors are std::invalid_argument; nothing has been written then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "gnmr/formats/element.h"

namespace gnmr::formats {

/// The name of a format: "e4m3", "bfloat16", "int8", ...
std::string_view format_name(Format format);

/// The format of that name, where there is one.
std::optional<Format> find_format(std::string_view name);

/// How values become codes.
struct Cast {
  Format format = Format::e4m3;
  Rounding rounding = Rounding::nearest_even;
  Overflow overflow = Overflow::saturate;
  std::uint64_t seed = 0;         // of stochastic rounding
  std::uint64_t first_index = 0;  // of the first element, so that slices of an array round as the whole does
};

/// What quantization did to values; calls add to it, so that one may run over many.
struct Statistics {
  std::uint64_t elements = 0;
  std::uint64_t non_finite = 0;  // of the input
  std::uint64_t overflowed = 0;  // rounded beyond the format's largest value, infinities included
  std::uint64_t flushed = 0;     // finite and not 0, but 0 afterwards
  double squared_error = 0;      // sums over elements that were finite and stayed so
  double squared_values = 0;

  /// The error of quantization relative to the values: the root of the ratio of the two sums; 0 where all values are 0.
  double relative_error() const;

  /// What two quantizations did together.
  Statistics& operator+=(const Statistics& other);
};

/// Writes the code of each value; not for bfloat16. `statistics` cost time and are left out where null.
void encode(const Cast& cast, std::span<const float> values, std::span<std::uint8_t> codes,
            Statistics* statistics = nullptr);

/// Writes the code of each value in bfloat16.
void encode_bfloat16(const Cast& cast, std::span<const float> values, std::span<std::uint16_t> codes,
                     Statistics* statistics = nullptr);

/// Writes the value of each code; not for bfloat16.
void decode(Format format, std::span<const std::uint8_t> codes, std::span<float> values);

/// Writes the value of each bfloat16 code.
void decode_bfloat16(std::span<const std::uint16_t> codes, std::span<float> values);

/// Writes each value as the format would hold it; `rounded` may be `values` itself. NaN stays NaN in every format.
void round_values(const Cast& cast, std::span<const float> values, std::span<float> rounded,
                  Statistics* statistics = nullptr);

/// The largest magnitude among the finite values; 0 where there is none.
float finite_amax(std::span<const float> values);

}  // namespace gnmr::formats
