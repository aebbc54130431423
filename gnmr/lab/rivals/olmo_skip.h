// SPDX-License-Identifier: Apache-2.0
// OLMo-core's SkipStepOptimizer: an update is left out where loss or gradient norm is far above those before it.
//
// Far above: more than `sigma` standard deviations (of a sample) above the mean of the last `window` steps; asked only
// from the step on at which, itself included, half a window has been seen. A step that is left out is stored too.
//
// Goals: numbers only, the authors' decisions. Non-goals: their arithmetic on the device, in float32.
#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "gnmr/lab/rivals/rule_options.h"

namespace gnmr::lab {

/// The rule with its memory.
class OlmoSkip {
 public:
  explicit OlmoSkip(const OlmoSkipOptions& options) : options_(options) {}

  /// Whether the update of a step with this loss and gradient norm is to be made; both are stored. False, and
  /// nothing is stored, where one of them is not finite.
  bool observe(double loss, double norm);

  /// Memory as bytes; `restore` is an `Error` for bytes that are no such memory, and changes nothing then.
  std::string save() const;
  void restore(std::string_view bytes);

 private:
  struct Step {
    double loss;
    double norm;
  };

  bool is_usual(double Step::*number, double value) const;

  OlmoSkipOptions options_;
  std::deque<Step> window_;  // oldest first
};

}  // namespace gnmr::lab
