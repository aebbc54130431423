// SPDX-License-Identifier: Apache-2.0
// The sums of squares of all gradients of a model, step after step.
//
// Goals: on a CUDA device one pass at the memory's speed and one copy to the host; its table is kept as long as
// gradients stay where they are. Elsewhere as squared_norms. Non-goals: single tensors (squared_norm.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

namespace gnmr::kernels {
class UnitNorms;
}

namespace gnmr::nn {

/// Stores where gradients lie. It belongs to one thread at a time.
class GradientSquares {
 public:
  GradientSquares();
  GradientSquares(GradientSquares&&) noexcept;
  GradientSquares& operator=(GradientSquares&&) noexcept;
  ~GradientSquares();

  /// One sum per tensor, in double; an undefined tensor has 0.
  std::vector<double> measure(std::span<const at::Tensor> gradients);

  /// The same left on the device, without waiting; false, with nothing done, where the gradients are not on one with
  /// our kernels.
  bool measure_on_device(std::span<const at::Tensor> gradients, double* sums);

  /// The kernels behind it, for clipping by those sums; only after `measure_on_device` was true.
  kernels::UnitNorms& norms();

 private:
  struct OnDevice;
  std::unique_ptr<OnDevice> on_device_;
};

}  // namespace gnmr::nn
