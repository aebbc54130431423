// SPDX-License-Identifier: Apache-2.0
// AdamW over many tensors in one launch, behind the gate that norms and alarm have set.
//
// Goals: what torch.optim.AdamW computes, within rounding; the clip coefficient is folded in; where the gate's `apply`
// is 0 no tensor is read or written, and no count of steps goes on; nothing waits for the device. A bfloat16 parameter
// may have a float32 master copy that is updated in its place. The learning rate may be read from device memory, so
// that a step that was captured in a CUDA graph need not be captured anew. Non-goals: other optimizers, float16
// parameters, moments that are not float32.
//
// An object belongs to one thread and one stream at a time. All pointers in the structures are to device memory and
// must live until the stream has passed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gnmr/kernels/element.h"
#include "gnmr/kernels/norms.h"

namespace gnmr::kernels {

/// One parameter with everything that its update reads and writes.
struct AdamWTensor {
  void* parameter = nullptr;
  const void* gradient = nullptr;  // null: skipped, its count of steps too
  float* mean = nullptr;           // of gradients (exp_avg)
  float* square = nullptr;         // mean of their squares (exp_avg_sq)
  float* steps = nullptr;          // updates so far, one number, as torch keeps it; no two tensors share it
  float* master = nullptr;  // of a bfloat16 parameter: what is updated; the parameter becomes its rounding (nearest
                            // even) and is not read. Null: the parameter itself
  std::uint64_t count = 0;
  ElementType parameter_type = ElementType::float32;  // float32 or bfloat16
  ElementType gradient_type = ElementType::float32;   // float32 or bfloat16
  double weight_decay = 0;

  bool operator==(const AdamWTensor&) const = default;
};

/// What may change from step to step.
struct AdamWSettings {
  double learning_rate = 1e-3;
  const double* device_learning_rate = nullptr;  // taken instead, when the stream comes to it, where not null
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

/// The optimizer's update.
class AdamW {
 public:
  AdamW();
  AdamW(AdamW&&) noexcept;
  AdamW& operator=(AdamW&&) noexcept;
  ~AdamW();

  /// One update, if `gate->apply` is not 0 when the stream comes to it. The tensors are compared with those of the last
  /// call: the table on the device is made anew only where one differs in more than where its gradient is, and
  /// addresses of gradients are sent only where one moved. Returns whether the table was. An `Error`, with nothing
  /// done, for a tensor with an address that is missing or not aligned as its elements are, another type, or a master
  /// copy of a float32 parameter.
  bool step(std::span<const AdamWTensor> tensors, const AdamWSettings& settings, const Gate* gate, void* stream);

  /// The two halves of it, for those who send addresses to the device themselves: the first makes the table and returns
  /// whether it did; the second finds the gradient of tensor i at gradients[i], in device memory, aligned as its
  /// elements are, and skips a tensor whose address is null.
  bool set_tensors(std::span<const AdamWTensor> tensors, void* stream);
  void step_at(const void* const* gradients, const AdamWSettings& settings, const Gate* gate, void* stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Throws the `Error` that `step` would throw for these tensors.
void check_tensors(std::span<const AdamWTensor> tensors);

}  // namespace gnmr::kernels
