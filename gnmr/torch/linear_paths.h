// SPDX-License-Identifier: Apache-2.0
// What a linear layer's two paths are: the switch of each product, the low path's memory, this step's measurements.
//
// Goals: plain values; the switch is read by forward and backward and written only between steps.
// Non-goals: threads: a layer's forward and backward calls do not overlap, and steps begin when none is running.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "gnmr/formats/cast.h"
#include "gnmr/formats/delayed_scaling.h"
#include "gnmr/recipes/recipe.h"
#include "gnmr/torch/low_path_hook.h"
#include "gnmr/torch/product_error.h"

namespace gnmr::nn {

class DeviceNumbers;

using recipes::CastRule;
using recipes::kOperandCount;
using recipes::kProductCount;
using recipes::Operand;
using recipes::Product;
using recipes::Recipe;

/// Whether the two paths of a layer's products are compared, and how.
enum class Comparison : std::uint8_t {
  none,
  projected,  // patrol: of products that run low, beside the step
  full,       // trial: all results are those of the high path, the low path runs beside them
};

/// What all layers of a model have in common in a step; its owner changes it between micro-batches.
struct StepClock {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t micro_batch = 0;
  bool rerun = false;  // the step runs again
};

/// Sums over the micro-batches of one step of one product.
struct ProductMeasurement {
  double squared_norm = 0;                     // of the gradient that SPEC names for the product
  bool sampled = false;                        // whether there was one
  std::array<formats::Statistics, 2> casts{};  // of its two operands, where evidence is asked for
  ErrorSums error;                             // of its low path, where that is compared
};

/// Switch, memory and measurements of one layer.
struct LinearPaths {
  std::shared_ptr<const Recipe> recipe;  // null: there is no low path
  std::shared_ptr<const StepClock> clock;
  std::uint32_t layer = 0;  // tells layers' random numbers apart

  // The switch: written between steps only.
  std::array<bool, kProductCount> low{};  // which products run low
  bool save_low = false;                  // whether the input is saved for backward in 8 bits
  bool can_save_low = false;              // whether it ever is: then that is compared too
  bool keep_low_weight = true;            // false: backward casts the weight again, for a byte a weight less memory
  LowPathHook* hook = nullptr;            // a laboratory's; it outlives the step

  // What to measure in this step.
  bool observing = true;          // false in evaluation: nothing is remembered or measured
  bool measure_products = false;  // norms of the products' gradients
  bool measure_casts = false;     // evidence
  Comparison comparison = Comparison::none;

  // What the low path remembers: it goes on whatever the switch says.
  std::array<std::array<formats::DelayedState, 2>, kProductCount> delayed{};
  std::array<float, kOperandCount> step_amax{-1, -1,
                                             -1};  // largest finite magnitude so far in this step; below 0: none seen

  std::array<ProductMeasurement, kProductCount> measured{};
  ErrorSums saved_error;  // of the input that was saved in 8 bits

  std::shared_ptr<DeviceNumbers> numbers;  // on a CUDA device: amax, measurements and delayed scales are there

  /// Forgets the last step's measurements.
  void begin_step();

  /// The amax of the step enters the histories.
  void end_step();
};

}  // namespace gnmr::nn
