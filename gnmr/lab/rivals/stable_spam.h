// SPDX-License-Identifier: Apache-2.0
// What Stable-SPAM (Huang et al., arXiv 2502.17055) does to gradients before Adam sees them, tensor by tensor.
//
// AdaClip: with the largest magnitude a and its running mean T (this step included), elements above T become
//   element / a * T. AdaGN: with the norm n that is left and the running means m of norms and v of their squares, the
//   gradient becomes gradient / n * m / (sqrt(v) + 1e-8). All running means are corrected for their start at 0.
//
// Goals: says what to do with the elements, whoever holds them; no torch. Non-goals: Adam, its periodic reset of
// moments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/lab/rivals/rule_options.h"

namespace gnmr::lab {

/// The gradients of one step, wherever they lie.
class GradientElements {
 public:
  virtual ~GradientElements() = default;

  /// The largest magnitude in a tensor.
  virtual double largest(std::size_t tensor) = 0;

  /// Multiplies the elements of a tensor whose magnitude is above `threshold`; its sum of squares from then on.
  virtual double scale_above(std::size_t tensor, double threshold, double factor) = 0;
};

/// The rule with its memory.
class StableSpam {
 public:
  explicit StableSpam(const StableSpamOptions& options) : options_(options) {}

  /// Clips elements and gives the factor for each tensor of a step with these sums of squares; all is stored. If a sum
  /// is not finite, gives nothing, touches nothing and stores nothing. A tensor that `is_absent` (one per tensor;
  /// empty: none) is skipped. The number of tensors must stay the same (`Error`).
  std::optional<std::vector<double>> observe(std::span<const double> squares, std::span<const char> is_absent,
                                             GradientElements& elements);

  /// Memory as bytes; `restore` is an `Error` for bytes that are no such memory, and changes nothing then.
  std::string save() const;
  void restore(std::string_view bytes);

 private:
  struct Tensor {
    std::int64_t steps = 0;
    double largest = 0;  // the three running means, corrected
    double norm = 0;
    double square = 0;
  };

  double clip_elements(std::size_t index, double square, GradientElements& elements);
  double normalize(Tensor& tensor, double square) const;

  StableSpamOptions options_;
  std::vector<Tensor> tensors_;
};

}  // namespace gnmr::lab
