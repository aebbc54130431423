// SPDX-License-Identifier: Apache-2.0
// Norms of units and clipping for a loop whose optimizer is somebody else's: gradients are read once, scaled in place
// where they must be, and the numbers go to the host without a wait.
//
//   ClippedNorms norms(units);
//   each step: norms.sum(slices, stream);                       // norms.sums() on the device
//              ... all-reduce of norms.sums(), where there are ranks ...
//              const NormsTicket ticket = norms.finish(max_norm, stream);
//              norms.read(ticket)                               // at once, or while the next step runs
//
// Goals: two launches per step whatever the number of tensors; nothing waits but `read`; where nothing is to be clipped
// gradients are not touched a second time. Non-goals: an optimizer's update (gated_step.h), decisions.
//
// An object belongs to one thread and one stream at a time. Pointers are to device memory and must live until the
// stream has passed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gnmr/kernels/norms.h"

namespace gnmr::kernels {

/// A step that was queued.
struct NormsTicket {
  std::uint64_t number = 0;
};

/// What it came to; the view is of pinned memory, valid until two more steps have been queued.
struct StepNorms {
  Gate gate = {};
  std::span<const double> sums = {};  // of squares, one per unit
};

/// Sums, clipping, numbers.
class ClippedNorms {
 public:
  /// Units that are only clipped with the others count too.
  explicit ClippedNorms(std::uint32_t units);
  ClippedNorms(ClippedNorms&&) noexcept;
  ClippedNorms& operator=(ClippedNorms&&) noexcept;
  ~ClippedNorms();

  /// Queues the sums of squares of all units. An `Error`, with nothing done, as `UnitNorms::set_shapes`.
  void sum(std::span<const Slice> slices, void* stream);

  /// Where they are on the device; whoever changes them does so between `sum` and `finish`, on the same stream.
  double* sums() const;

  /// Queues the rest of the step: the gradients of `sum` are multiplied with max_norm / (norm + 1e-6) where that is
  /// below 1 (as torch.nn.utils.clip_grad_norm_ does, also where the norm is not finite), and the numbers are sent. An
  /// infinite `max_norm` clips nothing. An `Error` where no sums have been queued.
  NormsTicket finish(double max_norm, void* stream);

  /// What `finish` made of the sums, on the device.
  const Gate* gate() const;

  /// Queues a multiplication of the gradients of the last `sum`, for those who decide on the host how to clip. An
  /// `Error` where there has been none.
  void scale(double factor, void* stream);

  /// Whether a step's numbers are there; an `Error` as `read`.
  bool is_there(NormsTicket ticket) const;

  /// Waits for a step's numbers. An `Error` where two more have been queued since.
  StepNorms read(NormsTicket ticket) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gnmr::kernels
