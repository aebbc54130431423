// SPDX-License-Identifier: Apache-2.0
// What a member's two paths are: the switch of each GEMM, the low path's amax history, this step's measurements. A
// linear layer is one member (members.h).
//
// Goals: plain values; the switch is read by forward and backward and written only between steps.
// Non-goals: threads: a layer's forward and backward calls do not overlap, and steps begin when none is running.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "gnmr/formats/cast.h"
#include "gnmr/low/amax_history.h"
#include "gnmr/low/error_sums.h"
#include "gnmr/low/hook.h"
#include "gnmr/low/row_probe.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::low {

class DeviceNumbers;

using recipes::CastRule;
using recipes::kOperandCount;
using recipes::kProductCount;
using recipes::Operand;
using recipes::Product;
using recipes::Recipe;

constexpr std::size_t index_of(Product product) { return static_cast<std::size_t>(product); }

/// Whether the two paths of a layer's GEMMs are compared, and how.
enum class Comparison : std::uint8_t {
  none,
  projected,  // patrol: of GEMMs that run low, beside the step
  full,       // trial: all results are those of the high path, the low path runs beside them
};

/// What all layers of a model have in common in a step; its owner changes it between micro-batches.
struct StepClock {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t micro_batch = 0;
  bool rerun = false;  // the step runs again
};

/// Sums over the micro-batches of one step of one GEMM.
struct ProductMeasurement {
  double squared_norm = 0;                     // of the gradient that SPEC names for the GEMM
  bool sampled = false;                        // whether there was one
  std::array<formats::Statistics, 2> casts{};  // of its two operands, where evidence is asked for
  ErrorSums error;                             // of its low path, where that is compared
};

/// What a patrol has made of a weight in this step: micro-batches share it.
struct ProjectedWeight {
  const void* weight = nullptr;  // where it was made from
  std::uint64_t signs = 0;       // seed of those for the forward GEMM: another in each step
  WeightProducts products = {};
};

/// Switch, amax history and measurements of one member.
struct LinearPaths {
  std::shared_ptr<const Recipe> recipe;  // null: there is no low path
  std::shared_ptr<const StepClock> clock;
  std::uint32_t layer = 0;      // distinguishes random numbers; of the next member it is the next
  std::size_t numbers_row = 0;  // in `numbers`; likewise

  // The switch: written between steps only.
  std::array<bool, kProductCount> low{};       // which GEMMs run low
  std::array<bool, kProductCount> recovers{};  // of the others: which run what the recipe recovers to, not high
  bool save_low = false;                       // whether the input is saved for backward in 8 bits
  bool can_save_low = false;                   // whether it ever is: then that is compared too
  bool keep_low_weight = true;  // false: backward quantizes the weight again, for one byte per weight less memory
  MatrixHook* hook = nullptr;   // a laboratory's; it outlives the step

  // What to measure in this step.
  bool observing = true;          // false in evaluation: no state changes and nothing is measured
  bool measure_products = false;  // norms of the GEMMs' gradients
  bool measure_casts = false;     // evidence
  Comparison comparison = Comparison::none;

  AmaxHistory amax;  // it goes on whatever the switch says

  std::array<ProductMeasurement, kProductCount> measured{};
  ErrorSums saved_error;             // of the input that was saved in 8 bits
  ProjectedWeight projected_weight;  // a weight changes between steps only

  std::shared_ptr<DeviceNumbers> numbers;  // on a CUDA device: amax, measurements and delayed scales are there

  /// All GEMMs run low, or none, which then run high.
  void run_all(bool all_low) {
    low.fill(all_low && recipe != nullptr);
    recovers.fill(false);
  }

  /// A GEMM of a unit in recovery leaves its low path as the recipe says.
  void recover(std::size_t product) {
    low[product] = low[product] && recipe->recovery[product].path == recipes::RecoveryPath::low;
    recovers[product] = !low[product];
  }

  /// The rules of a GEMM that runs what the recipe recovers to; null: it does not, or that is high precision.
  const recipes::GemmRules* recovery_rules(std::size_t product) const {
    const bool has_rules = recovers[product] && !low[product] && recipe != nullptr &&
                           recipe->recovery[product].path == recipes::RecoveryPath::rules;
    return has_rules ? &recipe->recovery[product].rules : nullptr;
  }

  /// Whether the two paths are compared in this way.
  bool compares_low() const { return comparison != Comparison::none && observing && recipe != nullptr; }

  /// Whether GEMMs that run high run low beside it, to be compared in full.
  bool compares_high() const { return comparison == Comparison::full && observing && recipe != nullptr; }

  /// Forgets the last step's measurements.
  void begin_step();

  /// Whether the end of the step will renew a scale because of which this GEMM's low path is off now. On a device the
  /// host does not know.
  bool is_stale(Product product, const formats::Refresh& refresh) const {
    return recipe != nullptr && numbers == nullptr && amax.will_answer(*recipe, product, refresh);
  }

  /// The amax of the step enters the histories.
  void end_step(const formats::Refresh& refresh = {});
};

/// The clock of a layer, or one at rest.
StepClock clock_of(const LinearPaths& paths);

/// A seed of its own for each layer, step, micro-batch, GEMM and purpose: recomputation finds the same one again.
std::uint64_t seed_of(const LinearPaths& paths, Product product, std::size_t purpose);

/// What a patrol of a GEMM draws. Signs are the same in all micro-batches of a step, so that a weight is read once;
/// rows are not. The signs of the weight's gradient are the same in all layers, which may share an input.
ProbeSeeds probe_seeds(const LinearPaths& paths, Product product);

}  // namespace gnmr::low
