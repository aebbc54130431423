// SPDX-License-Identifier: Apache-2.0
// A rule that changes gradients, or leaves an update out, by what it sees of loss and gradients: what others do where
// GNMR changes the path.
//
// Goals: the rule decides on numbers that the step has already; what must look at every element says so.
// Non-goals: which rules there are (gnmr/lab/rivals).
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gnmr::train {

/// One step before its update.
struct GradientView {
  std::int64_t step = 0;
  double loss = 0;
  std::span<const double> squares;        // of each parameter's gradient, reduced over ranks; may be inf or NaN
  std::span<const at::Tensor> gradients;  // one per parameter, undefined where there is none; a rule may change them
};

/// What is to be done.
struct GradientAction {
  bool skip = false;                 // the update is left out
  std::vector<double> coefficients;  // one per parameter, or empty: 1 for all
  bool replaces_clipping = false;    // the trainer's own clipping is left out in this step
  bool gradients_changed = false;    // elements were changed: norms must be taken again

  /// Whether the step's update is another one than without the rule; `clip` is the trainer's own coefficient.
  bool changes_update(double clip) const {
    const double plain = replaces_clipping ? clip : 1;
    const auto differs = [&](double coefficient) { return std::abs(coefficient - plain) > 1e-4 * plain; };
    if (skip || gradients_changed) return true;
    return coefficients.empty() ? differs(1) : std::any_of(coefficients.begin(), coefficients.end(), differs);
  }
};

/// A rule with its memory.
class GradientRule {
 public:
  virtual ~GradientRule() = default;

  /// Takes a step into its history.
  virtual GradientAction act(const GradientView& view) = 0;

  /// Its whole state, for a checkpoint; `restore` is an `Error` for bytes that are not its own.
  virtual std::string save() const = 0;
  virtual void restore(const std::string& bytes) = 0;
};

}  // namespace gnmr::train
