// SPDX-License-Identifier: Apache-2.0
// LibTorch as the front end of gnmr/low: its tensors as matrices, its memory, streams, threads and GEMMs.
#pragma once

#include <ATen/core/Tensor.h>

#include "gnmr/low/front_end.h"
#include "gnmr/low/matrix.h"

namespace gnmr::nn {

/// A tensor of one or two dimensions as a matrix, which keeps it; an undefined one is an undefined matrix.
low::Matrix matrix_of(const at::Tensor& tensor);

/// The tensor that a matrix of this front end is.
at::Tensor tensor_of(const low::Matrix& matrix);

/// The front end.
const low::FrontEnd& front_end();

/// Whether what is measured of a tensor stays on its device.
bool has_device_numbers(const at::Tensor& tensor);

}  // namespace gnmr::nn
