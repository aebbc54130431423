// SPDX-License-Identifier: Apache-2.0
// Everything between the gradients of a step and its weights, queued in one call: norms, clipping, errors, signals,
// alarm, gate, AdamW, and the numbers on their way to the host.
//
//   GatedStep gated({.parameters = ..., .units = ..., .signals = ...});
//   gated.set_tensors(tensors, gradient_of_tensor, stream);
//   gated.set_errors(error_lists, sites, stream);
//   each step: const StepTicket ticket = gated.run({...}, stream);
//              ... while the next step runs: gated.read(ticket)
//
// Goals: the host writes addresses to pinned memory and launches a CUDA graph that was recorded once; it waits for
// nothing and allocates nothing, as long as shapes stay. Gradients may move. What comes out is, bit for bit, what the
// parts give one by one (norms.h, unit_gather.h, signals.h, adamw.h). Non-goals: ranks, decisions.
//
// An object belongs to one thread and one stream at a time. Pointers in the structures are to device memory and must
// live until the stream has passed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "gnmr/kernels/adamw.h"
#include "gnmr/kernels/norms.h"
#include "gnmr/kernels/signals.h"
#include "gnmr/kernels/unit_gather.h"

namespace gnmr::kernels {

/// What stays the same in a run.
struct GatedStepSettings {
  std::uint32_t parameters = 0;  // whose gradients are summed and clipped
  std::uint32_t units = 0;       // that are watched
  SignalSettings signals = {};
  double max_norm = std::numeric_limits<double>::infinity();  // gradients are clipped at
};

/// Bytes of the device, in whole words of four.
struct DeviceBytes {
  const void* data = nullptr;
  std::size_t count = 0;

  bool operator==(const DeviceBytes&) const = default;
};

/// What the host knows of a step.
struct GatedStepInputs {
  std::span<const Slice> gradients;  // of parameters, which their `unit` names
  const UnitLists& lists;            // which sums make a unit's norm: the parameters', then `more_squares`
  const double* more_squares = nullptr;
  const double* loss = nullptr;         // one number
  std::span<const std::uint8_t> flags;  // gate_flag, one per unit
  const ErrorTotals* totals = nullptr;  // of the step's errors; null: there are none
  std::span<const float> limits = {};   // of these, units x sites; empty: they are not judged
  HoldRule hold = HoldRule::never;
  AdamWSettings optimizer = {};  // its `device_learning_rate` is not looked at
  DeviceBytes more = {};         // other numbers that the host wants with these
};

/// A step that was queued.
struct StepTicket {
  std::uint64_t number = 0;
};

/// What became of it; views are of pinned memory, valid until two more steps have been queued.
struct StepNumbers {
  Gate gate = {};
  double loss = 0;
  StepAlarm alarm = {};
  std::span<const double> sums = {};     // of squares, one per parameter
  std::span<const std::byte> more = {};  // as it was asked for
};

/// The step behind the gradients.
class GatedStep {
 public:
  explicit GatedStep(const GatedStepSettings& settings);
  GatedStep(GatedStep&&) noexcept;
  GatedStep& operator=(GatedStep&&) noexcept;
  ~GatedStep();

  /// What is updated: tensor i with gradient gradient_of_tensor[i] of each step's; its own `gradient` is not looked at.
  /// An `Error` as `AdamW::set_tensors`.
  void set_tensors(std::span<const AdamWTensor> tensors, std::span<const std::uint32_t> gradient_of_tensor,
                   void* stream);

  /// Which totals make the errors of each site of each unit; without it no errors are judged. An `Error` for a wrong
  /// number of lists.
  void set_errors(const UnitLists& lists, std::uint32_t sites, void* stream);

  /// The state of the units.
  UnitSignals& signals();

  /// Queues a step. An `Error`, with nothing done, for wrong numbers of flags, limits, lists, gradients or bytes, as
  /// `UnitNorms::set_shapes` and as `UnitGather::set`.
  StepTicket run(const GatedStepInputs& inputs, void* stream);

  /// Waits for a step's numbers. An `Error` where two more have been queued since.
  StepNumbers read(StepTicket ticket) const;

  /// How often launches have been recorded: it grows only where shapes or places on the device change.
  std::uint64_t recordings() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gnmr::kernels
