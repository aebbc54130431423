// SPDX-License-Identifier: Apache-2.0
// A hook for tests: it cuts or enlarges inputs at one of the four sites, in one layer, and counts its calls.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "gnmr/torch/low_path_hook.h"

namespace gnmr::nn::testing {

/// Where it acts.
enum class Site { before_cast, in_cast, after_cast, after_product };

/// Cuts the input's magnitudes to the largest / 16, or multiplies those above the largest / 8 by 16.
class CuttingHook : public LowPathHook {
 public:
  CuttingHook(Site site, std::uint32_t layer, bool enlarges = false)
      : site_(site), layer_(layer), enlarges_(enlarges) {}

  at::Tensor before_cast(const LowPathCall& call, recipes::Operand operand, const at::Tensor& matrix) override {
    return changed(Site::before_cast, call, operand, matrix);
  }
  at::Tensor in_cast(const LowPathCall& call, recipes::Operand operand, const at::Tensor& matrix) override {
    return changed(Site::in_cast, call, operand, matrix);
  }
  at::Tensor after_cast(const LowPathCall& call, recipes::Operand operand, const at::Tensor& cast) override {
    return changed(Site::after_cast, call, operand, cast);
  }
  at::Tensor after_product(const LowPathCall& call, const at::Tensor& result) override {
    return changed(Site::after_product, call, {}, result);
  }

  std::vector<LowPathCall> calls;  // that it changed something in
  bool only_first_runs = false;    // transient: not where the step runs again

 private:
  at::Tensor changed(Site site, const LowPathCall& call, std::optional<recipes::Operand> operand,
                     const at::Tensor& matrix) {
    if (site != site_ || call.layer != layer_ || (only_first_runs && call.rerun)) return matrix;
    if (operand && *operand != recipes::Operand::input) return matrix;
    calls.push_back(call);
    const float largest = matrix.abs().max().item<float>();
    if (enlarges_) return at::where(matrix.abs() > largest / 8, matrix * 16, matrix);
    return at::clamp(matrix, -largest / 16, largest / 16);
  }

  Site site_;
  std::uint32_t layer_;
  bool enlarges_;
};

}  // namespace gnmr::nn::testing
