// SPDX-License-Identifier: Apache-2.0
// The numbers of one run of a batch: loss, norms, errors of low paths, what the update is.
//
// Goals: whatever is asked about a run after another one has begun was taken at its end; numbers may still be on their
// way from a device. Non-goals: measuring (gnmr/torch), running (batch_runner.h), deciding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gnmr/torch/units.h"

namespace gnmr::train {

struct BatchNumbers;

/// What becomes of a gradient.
struct Update {
  double grad_norm = 0;  // before clipping
  double clip = 1;       // what it is multiplied with
  bool applied = true;   // false: it is not finite, or held
};

/// Numbers on their way from a device.
class PendingNumbers {
 public:
  virtual ~PendingNumbers() = default;

  /// Waits for them; fills in the loss, the parameters' sums of squares, what the gate did, and hands what the units
  /// measured in the run to them.
  virtual void complete(BatchNumbers& numbers) = 0;
};

/// One run of a batch.
struct BatchNumbers {
  double loss = 0;
  at::Tensor device_loss = {};                        // one double, until the numbers are on the host
  std::shared_ptr<PendingNumbers> pending = nullptr;  // null: all of them are

  // Sums of squares of gradients, reduced over ranks.
  std::vector<double> squares = {};             // one per parameter
  std::vector<std::uint8_t> has_gradient = {};  // one per parameter
  double own_norm = 0;                          // of this rank's gradients, where there are several

  formats::Refresh refresh = {};  // of delayed scales, at the end of the step

  // Of the units as they were in this run.
  nn::RecoverableUnits::Norms norms = {};
  std::vector<std::uint8_t> forced_high = {};  // one per unit: the user keeps it high
  std::vector<double> errors = {};             // per unit and product, NaN where not measured; empty: nobody asks
  std::vector<double> judged_errors = {};    // of these, what a decision may go by: not of units forced high, nor stale
  std::vector<nn::CastEvidence> casts = {};  // one per unit, where they are logged

  Update update = {};
  std::optional<bool> rule_acted = {};  // whether a rival's rule changed the update; none without a rule
  bool held = false;                    // by a gate
  double seconds = 0;                   // of the run, all of it, but for
  double aside_seconds = 0;             // what only an experiment measures
};

/// The update that gradients with these sums of squares make, clipped at `largest_norm` (0: not clipped). One that is
/// not finite, or would not be in the optimizer, is not applied.
Update update_of(std::span<const double> squares, double largest_norm);

}  // namespace gnmr::train
