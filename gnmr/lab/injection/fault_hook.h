// SPDX-License-Identifier: Apache-2.0
// Does to low paths what a plan says.
//
// Goals: the same fault in the same step is the same, bit for bit, however often the step runs; a layer without a fault
// gets its own tensor back. Non-goals: choosing faults (fault_plan.h), the arithmetic of one (tensor_faults.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gnmr/lab/injection/fault_plan.h"
#include "gnmr/run/random_stream.h"
#include "gnmr/torch/low_path_hook.h"

namespace gnmr::lab {

/// At this strength all rows are wrong, or all elements but the largest flushed, or all elements hit by flipped bits.
inline constexpr double kAllRowsStrength = 512;
inline constexpr double kAllFlushedStrength = 128;
inline constexpr double kAllFlippedStrength = 1024;

/// What all faults of a run have in common.
struct FaultHookSettings {
  double strength = 64;   // at least 1
  std::int64_t seed = 1;  // of rows, elements and bits
};

/// The hook of a run with planned faults. It belongs to the thread that runs forward or backward.
class FaultHook : public nn::LowPathHook {
 public:
  FaultHook(std::span<const PlannedFault> faults, const FaultHookSettings& settings);

  at::Tensor before_cast(const nn::LowPathCall& call, recipes::Operand operand, const at::Tensor& matrix) override;
  at::Tensor in_cast(const nn::LowPathCall& call, recipes::Operand operand, const at::Tensor& matrix) override;
  bool changes_casts(const nn::LowPathCall& call, recipes::Operand operand) const override;
  at::Tensor after_cast(const nn::LowPathCall& call, recipes::Operand operand, const at::Tensor& cast) override;
  at::Tensor observed(const nn::LowPathCall& call, recipes::Operand operand, const at::Tensor& matrix) override;
  at::Tensor after_product(const nn::LowPathCall& call, const at::Tensor& result) override;

  /// The scales that are stuck and the weights that are cached, as text; `restore` is an `Error` for any other text.
  /// All else follows from the plan.
  std::string save() const;
  void restore(const std::string& text);

 private:
  /// A fault's own largest input, as it was when the fault began.
  struct StuckScale {
    std::int64_t step_first = 0;
    double largest = 0;
  };

  /// FP8 data of a weight, as they were when its layer first ran low with the fault.
  struct CachedWeight {
    std::int64_t step_first = 0;
    at::Tensor codes;
  };

  /// The faults of one layer, by their first steps, and what these keep.
  struct Layer {
    std::vector<PlannedFault> faults;
    std::optional<StuckScale> stuck;
    std::optional<CachedWeight> cached;
  };

  /// What was observed last of one operand.
  struct Observed {
    nn::LowPathCall call;
    at::Tensor matrix;
  };

  const PlannedFault* acting(const nn::LowPathCall& call) const;
  double stuck_largest(const PlannedFault& fault, const at::Tensor& matrix);
  at::Tensor cached_weight(const PlannedFault& fault, const at::Tensor& weight);
  at::Tensor of_neighbour(const nn::LowPathCall& call, recipes::Operand operand, const at::Tensor& matrix);
  run::RandomStream random_of(const nn::LowPathCall& call) const;

  std::vector<Layer> layers_;
  bool keeps_observed_ = false;
  std::array<Observed, recipes::kOperandCount> observed_;
  FaultHookSettings settings_;
};

}  // namespace gnmr::lab
