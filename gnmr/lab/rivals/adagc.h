// SPDX-License-Identifier: Apache-2.0
// AdaGC (Wang et al., arXiv 2502.11034): each tensor's gradient is clipped by a running mean of its own clipped norms.
//
// In the warm-up all gradients are multiplied by h = min(1, lambda_abs / norm of all), and a tensor's reference is the
// smallest h * norm it has had. From then on a tensor is multiplied by h = min(1, lambda_rel * reference / norm), and
//   reference = beta reference + (1 - beta) h norm.
//
// Goals: numbers only. Non-goals: tensors, non-finite norms (they are refused).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/lab/rivals/rule_options.h"

namespace gnmr::lab {

/// The rule with its memory.
class AdaGc {
 public:
  explicit AdaGc(const AdaGcOptions& options) : options_(options) {}

  /// The factor for each tensor of a step with these norms, which are stored; nothing, and nothing is stored,
  /// where one is not finite. A norm of 0 carries no information: the tensor is skipped. The number of tensors must
  /// stay the same (`Error`).
  std::optional<std::vector<double>> observe(std::span<const double> norms);

  /// Memory as bytes; `restore` is an `Error` for bytes that are no such memory, and changes nothing then.
  std::string save() const;
  void restore(std::string_view bytes);

 private:
  std::vector<double> warm_up(std::span<const double> norms);
  std::vector<double> clip(std::span<const double> norms);

  AdaGcOptions options_;
  std::int64_t steps_ = 0;
  std::vector<double> references_;  // one per tensor; 0: none yet
};

}  // namespace gnmr::lab
