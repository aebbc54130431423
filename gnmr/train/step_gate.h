// SPDX-License-Identifier: Apache-2.0
// The gate between gradients and weights in a run with lag 1: it judges a pass by its norms and errors, beside the
// step, and makes the update or holds it. "With a gate" in docs/algorithm.md; gnmr/core/step_planner.h plans what it
// may do.
//
// Goals: one interface for the host's gate and for one that stands on a device, where nothing waits; the same norms,
// errors, flags and limits close both. Non-goals: decisions, what becomes of a held batch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gnmr/core/controller.h"
#include "gnmr/torch/units.h"
#include "gnmr/train/batch_numbers.h"
#include "gnmr/train/optimizer.h"

namespace gnmr::train {

/// What a gate needs to know of a step.
struct GateStep {
  HoldRule hold = HoldRule::never;
  std::span<const std::uint8_t> flags;  // gate_flag per unit, as the plan has them
  std::span<const float> error_limits;  // per unit and GEMM, likewise
  double learning_rate = 0;
};

/// A gate belongs to one run and one thread; `pass` is called once per step, in their order.
class StepGate {
 public:
  virtual ~StepGate() = default;

  /// Takes over the controller's history of the units' norms: where a run begins or goes on. All steps so far must
  /// have been decided.
  virtual void load(const Controller& controller) = 0;

  /// Looks at norms and errors in `numbers` and takes the norms into its history, unless it holds the step for a trial.
  /// The gradients of the pass are those of the parameters now: unless the step is held, or they are not finite, the
  /// optimizer makes its update with them. `held` and `update` of the numbers say what was done, when they are read.
  virtual void pass(BatchNumbers& numbers, const GateStep& step) = 0;
};

/// The gate on the host (gnmr/core/host_gate.h); the optimizer outlives it.
std::unique_ptr<StepGate> make_host_gate(AdamW& optimizer, const Controller& controller);

/// What a gate on a device works on; all of it outlives the gate.
struct DeviceGateParts {
  AdamW& optimizer;             // which `has_kernels`
  nn::RecoverableUnits& units;  // of parameters on one CUDA device
  Options options;
  Selector selector;        // in force
  double largest_norm = 0;  // gradients are clipped at; 0: not
};

/// The gate on a CUDA device, where nothing waits: `pass` needs of the numbers no more than the loss and who has a
/// gradient, and leaves the rest on its way.
std::unique_ptr<StepGate> make_device_gate(const DeviceGateParts& parts);

}  // namespace gnmr::train
