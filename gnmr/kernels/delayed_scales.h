// SPDX-License-Identifier: Apache-2.0
// Delayed scaling of many tensors on the device: histories of amax and the scales that come from them.
//
//   DelayedScales delayed(tensors);
//   each step: clear_amaxes(amaxes, count, stream);
//              ... each micro-batch: quantizing finds an amax, then keep_larger(found, amaxes + i, 1, stream); it takes
//                  delayed.scales() + tensor as its `given_scale`. Before anything was observed the amax is found
//                  first, and delayed.first_scale(tensor, found, stream) makes a scale of it ...
//              ... the largest of all ranks, where there are any ...
//              delayed.leave_out_answered(amaxes, refresh, totals, stream);   // where errors were measured
//              delayed.observe(amaxes, stream, refresh);
//
// Goals: formats::observe_amax (gnmr/formats/delayed_scaling.h) bit for bit, all tensors in one launch; states that can
// be saved and loaded as that header has them. Nothing waits for the device but the constructor, `save` and `load`.
// Non-goals: finding an amax (casts.h), sums over ranks.
//
// An object belongs to one thread and one stream at a time. All pointers but those to objects of C++ are to device
// memory and must live until the stream has passed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gnmr/formats/delayed_scaling.h"
#include "gnmr/kernels/row_errors.h"

namespace gnmr::kernels {

/// One scale: how it follows its history, and whose amax it observes. Quantizing one operand for two GEMMs has a
/// tensor each and share an amax.
struct DelayedTensor {
  formats::DelayedScaling rule = {};
  std::uint32_t amax = 0;    // index in `amaxes`
  std::uint32_t totals = 0;  // index in `totals`: the errors of the GEMM that it is an operand of
};

/// Sets all to -1: none seen.
void clear_amaxes(float* amaxes, std::uint64_t count, void* stream);

/// amaxes[i] becomes the larger of itself and found[i]; a NaN in `found` changes nothing.
void keep_larger(const float* found, float* amaxes, std::uint64_t count, void* stream);

/// Histories and scales of a fixed number of tensors.
class DelayedScales {
 public:
  /// Tensors without a past; their scales are 1. An `Error` for a history length or an update interval of 0.
  explicit DelayedScales(std::span<const DelayedTensor> tensors);
  DelayedScales(DelayedScales&&) noexcept;
  DelayedScales& operator=(DelayedScales&&) noexcept;
  ~DelayedScales();

  /// The scales to quantize with, one per tensor; the address stays the same as long as the object lives.
  const float* scales() const;

  /// Before anything was observed the scale is that of the tensor itself: where a tensor has observed nothing its scale
  /// becomes formats::float32_scale of amaxes[its index], if that is not negative. It is used until the first
  /// observation, and is not saved.
  void first_scales(const float* amaxes, void* stream);

  /// The same for one tensor and its own amax, wherever that lies. An `Error` for a tensor that there is not.
  void first_scale(std::uint32_t tensor, const float* amax, void* stream);

  /// Takes in amaxes[index] of every tensor, as formats::observe_amax; where it is negative none was seen, and the
  /// tensor stays as it is.
  void observe(const float* amaxes, void* stream, const formats::Refresh& refresh = {});

  /// Before `observe`: totals[index] of every tensor whose scale that will renew because it no longer fits
  /// (formats::renewal_answers) becomes that of nothing measured.
  void leave_out_answered(const float* amaxes, const formats::Refresh& refresh, ErrorTotals* totals,
                          void* stream) const;

  /// The states after all observations so far; waits for the stream.
  std::vector<formats::DelayedState> save(void* stream) const;

  /// Takes over as many states, else an `Error`; of a history that is too long the newest. An `Error` too for an amax
  /// or a scale that is not finite, or negative. Waits for the stream.
  void load(std::span<const formats::DelayedState> states, void* stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Throws the `Error` that the constructor would throw for these tensors.
void check_delayed(std::span<const DelayedTensor> tensors);

}  // namespace gnmr::kernels
