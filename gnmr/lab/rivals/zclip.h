// SPDX-License-Identifier: Apache-2.0
// ZClip (Kumar et al., arXiv 2504.02507): a spike is a gradient norm with a high z-score against running statistics.
//
// In the warm-up norms are collected; their mean and variance (over n) begin. From then on, with the norm n,
//   z-score s = (n - mean) / (deviation + 1e-6); a spike where s > z; it is clipped to mean + z^2 / s deviations;
//   mean = alpha mean + (1 - alpha) n', variance = alpha variance + (1 - alpha) (n' - mean)^2, n' the clipped norm.
// In every step the norm is also held below `max_norm`, which the statistics do not see.
//
// Goals: numbers only, the arithmetic of the authors' code. Non-goals: tensors, non-finite norms (they are refused).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/lab/rivals/rule_options.h"

namespace gnmr::lab {

/// The rule with its memory.
class ZClip {
 public:
  explicit ZClip(const ZClipOptions& options) : options_(options) {}

  /// The factor for all gradients of a step with this norm, which is stored; nothing, and nothing is stored,
  /// for a norm that is not finite.
  std::optional<double> observe(double norm);

  /// Memory as bytes; `restore` is an `Error` for bytes that are no such memory, and changes nothing then.
  std::string save() const;
  void restore(std::string_view bytes);

 private:
  void warm_up(double norm);
  double clipped_norm(double norm) const;

  ZClipOptions options_;
  bool is_initialized_ = false;
  double mean_ = 0;
  double variance_ = 0;
  std::vector<double> warmup_norms_;
};

}  // namespace gnmr::lab
