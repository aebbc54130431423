// SPDX-License-Identifier: Apache-2.0
// What one run of a batch leaves to be read: numbers that may still be on their way from a device.
//
//   PassNumbers numbers = ...;                  // taken at the end of the pass
//   PassResult result = read(std::move(numbers));  // at once, or with lag 1 while the next pass runs
//
// Goals: whatever is asked about a pass after another one has begun was taken at its end; `read` is the one place that
// waits for a device. Non-goals: measuring (gnmr/torch), deciding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "gnmr/torch/units.h"

namespace gnmr::train {

/// Sums of squares of gradients, reduced over ranks.
struct GradientSquares {
  std::vector<double> parameters;
  std::vector<std::uint8_t> has_gradient;  // one a parameter
  std::vector<double> products;            // one a unit
  double total() const;
};

/// What becomes of a gradient.
struct Update {
  double grad_norm = 0;  // before clipping
  double clip = 1;       // what it is multiplied with
  bool applied = true;   // false: it is not finite, or held
};

/// One run of a batch.
struct PassResult {
  double loss = 0;
  GradientSquares squares;
  std::vector<double> error_sums;  // of low paths that were compared
  double own_norm = 0;             // of this rank's gradients, where there are several

  // Of the units as they were in this pass.
  nn::RecoverableUnits::Norms norms;
  std::vector<std::uint8_t> forced_high;  // one a unit: the user keeps it high
  std::vector<double> cast_errors;        // where they are the evidence
  std::vector<nn::CastEvidence> casts;    // one a unit, where they are written down

  // What the gate did, where there is one.
  bool held = false;
  Update update;
};

/// Numbers on their way from a device.
class PendingNumbers {
 public:
  virtual ~PendingNumbers() = default;

  /// Waits for them; fills in the loss, the parameters' sums of squares, what the gate did, and makes what the units
  /// measured in the pass known to them.
  virtual void complete(PassResult& pass) = 0;
};

/// The same before it is read.
struct PassNumbers {
  at::Tensor loss;                                    // one double, on the device
  PassResult rest;                                    // all but the loss
  std::shared_ptr<PendingNumbers> pending = nullptr;  // where not null it has the loss and some of the rest
};

/// Brings the numbers of a pass to the host, waiting for them.
PassResult read(PassNumbers numbers);

/// The update that these gradients make, clipped at `largest_norm` (0: not clipped). One that is not finite, or would
/// not be in the optimizer, is not applied.
Update update_of(const GradientSquares& squares, double largest_norm);

}  // namespace gnmr::train
