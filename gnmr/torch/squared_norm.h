// SPDX-License-Identifier: Apache-2.0
// Sums of squares: the only thing that is read off gradients.
//
// Goals: one pass, no copy, sums in double (a finite float32 gradient stays finite), the same bits whatever the number
// of threads. Non-goals: roots, units (units.h), devices with kernels of their own.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

namespace gnmr::nn {

/// The sum of squares of all elements of a tensor of any floating-point type, layout and device.
double squared_norm(const at::Tensor& tensor);

/// The sums of many tensors, in one pass shared among threads; an undefined tensor has 0.
std::vector<double> squared_norms(std::span<const at::Tensor> tensors);

}  // namespace gnmr::nn
