// SPDX-License-Identifier: Apache-2.0
// The slow answer: what element.h and the kernels must give, written down from the definition.
//
// A format is the list of its values, and rounding finds the neighbours in that list, in double precision. For tests
// and for looking things up; nothing fast uses it. Scaled quantization is here in its plainest form: each element asks
// for the largest magnitude of its group.
#pragma once

#include <cstdint>

#include "gnmr/formats/cast.h"
#include "gnmr/formats/scaling.h"

namespace gnmr::formats::reference {

/// The value of a code, from its fields.
double decode(Format format, std::uint32_t code);

/// The code of a value with that index.
std::uint32_t encode(const Cast& cast, float value, std::uint64_t index = 0);

/// Whether the value overflows.
bool overflows(const Cast& cast, float value, std::uint64_t index = 0);

/// The scale of the group of an element.
float scale_at(const Cast& cast, const Scaling& scaling, ConstMatrix matrix, std::size_t row, std::size_t col);

/// The element after quantise and dequantise.
float fake_quantised_at(const Cast& cast, const Scaling& scaling, ConstMatrix matrix, std::size_t row, std::size_t col);

}  // namespace gnmr::formats::reference
