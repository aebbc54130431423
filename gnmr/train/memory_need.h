// SPDX-License-Identifier: Apache-2.0
// Whether a model fits, found out before anything is allocated.
//
// Goals: a model that cannot fit is refused at once, with the size that it needs. Non-goals: an exact prediction: what
// is counted here is the least that training needs, so nothing that fits is refused.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "gnmr/models/llama_config.h"

namespace gnmr::train {

/// Bytes that this process can still have on the host: of the machine, or of its control group where that has less.
/// 0: not known.
std::int64_t free_host_bytes();

/// The same of a device, with what torch holds and does not use.
std::int64_t free_device_bytes(const at::Device& device);

/// What a run holds at the least.
struct MemoryNeed {
  double parameters = 0;
  double state_bytes = 0;   // weights, gradients, AdamW's moments and, in bfloat16, the master copy
  double logits_bytes = 0;  // of a micro-batch, with their gradient

  double bytes() const { return state_bytes + logits_bytes; }

  /// In words: `194.0 GiB (16 bytes for each of 13.02 billion parameters, ...)`.
  std::string text() const;
};

/// What a model needs for micro-batches of that many tokens.
MemoryNeed memory_need(const models::LlamaConfig& config, double tokens);

/// What a model without logits needs.
MemoryNeed memory_need(double parameters);

/// Throws an `Error` that says what is needed and what there is, where it cannot fit on `device`. `model` is its name.
void check_memory(const std::string& model, const MemoryNeed& need, const at::Device& device);

}  // namespace gnmr::train
