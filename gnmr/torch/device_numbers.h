// SPDX-License-Identifier: Apache-2.0
// What the layers of a model measure and remember on a CUDA device, so that no layer waits for it.
//
// Goals: one place for all numbers of a step, read with one copy; scales of delayed scaling stay on the device.
// Non-goals: what the numbers mean (linear_paths.h, units.h); other devices: there everything is on the host.
//
// It belongs to one thread, and to the stream that is torch's current one when it is used.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gnmr/formats/cast.h"
#include "gnmr/formats/delayed_scaling.h"
#include "gnmr/kernels/compare.h"
#include "gnmr/recipes/recipe.h"
#include "gnmr/torch/pinned_copies.h"

namespace gnmr::kernels {
class DelayedScales;
}

namespace gnmr::nn {

struct LinearPaths;

/// Places whose errors are measured: the products, and the saved input.
inline constexpr std::size_t kErrorPlaces = recipes::kProductCount + 1;

/// Everything that was measured in a step, on the host.
struct HostNumbers {
  std::vector<double> squares;                  // one a layer and product
  std::vector<kernels::ErrorTotals> errors;     // one a layer and place
  std::vector<float> amaxes;                    // one a layer and operand; below 0: none seen
  std::vector<formats::Statistics> casts = {};  // one a layer, product and place
};

/// The same on its way to the host.
class NumbersOnTheWay {
 public:
  /// Waits for it.
  HostNumbers wait();

  /// The same where the caller has brought the bytes of `DeviceNumbers::bytes` himself.
  HostNumbers wait(std::span<const std::byte> bytes);

 private:
  friend class DeviceNumbers;
  NumbersOnTheWay(PinnedCopies copies, std::vector<std::size_t> cast_indices, std::size_t layers)
      : copies_(std::move(copies)), cast_indices_(std::move(cast_indices)), layers_(layers) {}

  PinnedCopies copies_;  // all numbers unless the caller brings them, and what casts did where there were any
  std::vector<std::size_t> cast_indices_;
  std::size_t layers_;
};

/// The numbers of all layers.
class DeviceNumbers {
 public:
  /// Room for so many layers with low paths of `recipe` (null: none).
  DeviceNumbers(std::size_t layers, std::shared_ptr<const recipes::Recipe> recipe, const c10::Device& device);
  ~DeviceNumbers();

  const c10::Device& device() const { return device_; }

  /// Forgets what was measured.
  void begin_step();

  /// Histories and scales take in the amaxes of the step.
  void end_step();

  /// All numbers of the step so far; nothing waits.
  NumbersOnTheWay send() const;

  /// The same, all but `bytes`.
  NumbersOnTheWay send_rest() const;

  /// Where most of the numbers lie, for those who copy them with others; the place stays.
  std::span<const std::byte> bytes() const;

  /// The squares of products' gradients, one a layer and product.
  const double* squares() const { return doubles_.const_data_ptr<double>(); }

  /// Puts the largest magnitudes of all processes in the place of this one's.
  void set_amaxes(const std::vector<float>& amaxes);

  /// What is remembered, one state a layer, product and place that has delayed scaling; waits for the device.
  std::vector<formats::DelayedState> save() const;

  /// Takes it over; waits for the device.
  void load(const std::vector<formats::DelayedState>& states);

  double* square(std::size_t layer, recipes::Product product);
  kernels::ErrorTotals* error(std::size_t layer, std::size_t place);
  at::Tensor amax(std::size_t layer, recipes::Operand operand);

  /// The scale of a cast, one number; undefined before anything is remembered: then it is that of the matrix itself.
  at::Tensor delayed_scale(std::size_t layer, recipes::Product product, std::size_t place);

  /// Room for what one cast does, to be written by it.
  formats::Statistics* statistics(std::size_t layer, recipes::Product product, std::size_t place);

 private:
  struct CastEntry {
    std::size_t index;
    at::Tensor bytes;
  };

  NumbersOnTheWay send(std::vector<at::Tensor> tensors) const;

  std::size_t layers_;
  c10::Device device_;
  std::shared_ptr<PinnedPool> pool_ = std::make_shared<PinnedPool>();
  at::Tensor bytes_;    // everything that is read after a step, for one copy
  at::Tensor doubles_;  // the first part of it: squares, then totals of errors
  at::Tensor amaxes_;   // the second
  std::vector<CastEntry> casts_;
  std::unique_ptr<kernels::DelayedScales> delayed_;          // null: the recipe has none
  std::vector<std::optional<std::uint32_t>> delayed_index_;  // of each layer, product and place
  at::Tensor scales_;                                        // a view of the scales
  std::vector<std::uint8_t> remembered_;                     // whether a scale has had an observation
  std::vector<std::uint8_t> seen_;                           // whether a layer's operand was seen in this step
};

/// The numbers of one layer.
class LayerNumbers {
 public:
  LayerNumbers(DeviceNumbers& all, std::size_t layer) : all_(all), layer_(layer) {}

  double* square(recipes::Product product) const { return all_.square(layer_, product); }
  kernels::ErrorTotals* error(std::size_t place) const { return all_.error(layer_, place); }
  at::Tensor amax(recipes::Operand operand) const { return all_.amax(layer_, operand); }
  at::Tensor delayed_scale(recipes::Product product, std::size_t place) const {
    return all_.delayed_scale(layer_, product, place);
  }
  formats::Statistics* statistics(recipes::Product product, std::size_t place) const {
    return all_.statistics(layer_, product, place);
  }

 private:
  DeviceNumbers& all_;
  std::size_t layer_;
};

/// Whether what is measured of a matrix stays on its device.
bool has_device_numbers(const at::Tensor& matrix);

/// Those of a layer; a layer without units gets its own.
LayerNumbers numbers_of(LinearPaths& paths, const c10::Device& device);

}  // namespace gnmr::nn
