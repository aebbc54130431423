// SPDX-License-Identifier: Apache-2.0
// Sums over the processes of a run.
//
// Goals: the trainer asks for sums and maxima and does not know who answers. Non-goals: starting processes, gradients
// that are spread over ranks (every rank holds all of a gradient here).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

namespace gnmr::nn {

/// The processes of a run. All of them call the same members in the same order.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const { return 0; }
  virtual int size() const { return 1; }

  /// Each element becomes the sum over all ranks.
  virtual void sum(at::Tensor&) {}

  /// Each element becomes the largest over all ranks.
  virtual void largest(at::Tensor&) {}
};

/// The processes of a group that Python's torch.distributed has made under that name.
std::unique_ptr<Collective> process_group(const std::string& name);

}  // namespace gnmr::nn
