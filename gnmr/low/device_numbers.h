// SPDX-License-Identifier: Apache-2.0
// Measurements and amax histories of layers on a CUDA device, so that none of them waits for it.
//
// Goals: one place for all numbers of a step, read with one copy; scales of delayed scaling stay on the device.
// Non-goals: what the numbers mean (linear_paths.h); bringing them to the host (the front end does); other devices:
// there everything is on the host.
//
// It belongs to one thread, and to the stream that is the front end's current one when it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gnmr/formats/cast.h"
#include "gnmr/formats/delayed_scaling.h"
#include "gnmr/kernels/row_errors.h"
#include "gnmr/low/front_end.h"
#include "gnmr/low/matrix.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::kernels {
class DelayedScales;
}

namespace gnmr::low {

struct LinearPaths;

/// Places whose errors are measured: the GEMMs, and the saved input.
inline constexpr std::size_t kErrorPlaces = recipes::kProductCount + 1;

/// Everything that was measured in a step, on the host.
struct HostNumbers {
  std::vector<double> squares = {};               // one per layer and GEMM
  std::vector<kernels::ErrorTotals> errors = {};  // one per layer and place
  std::vector<float> amaxes = {};                 // one per layer and operand; below 0: none seen
  std::vector<formats::Statistics> casts = {};    // one per layer, GEMM and operand; empty: none were counted
};

/// The numbers of some layers, each with a row of them.
class DeviceNumbers {
 public:
  /// Room for so many layers with low paths of `recipe` (null: none) where `like` is.
  DeviceNumbers(const FrontEnd& front_end, std::size_t layers, const std::shared_ptr<const recipes::Recipe>& recipe,
                const Matrix& like);
  ~DeviceNumbers();

  /// The index of its device.
  int device() const { return bytes_.device; }

  /// Forgets what was measured.
  void begin_step();

  /// Before the end of the step: errors of GEMMs that this will answer with a new scale count as not measured.
  void leave_out_answered(const formats::Refresh& refresh);

  /// Histories and scales take in the amaxes of the step; `refresh`: when a scale is renewed early.
  void end_step(const formats::Refresh& refresh = {});

  /// Where all numbers but the statistics lie, for one copy to the host; the place stays.
  std::span<const std::byte> bytes() const;

  /// The same as a matrix of bytes, for front ends that make their copies by their library.
  const Matrix& matrix() const { return bytes_; }

  /// The statistics of the step so far: bytes of the device, and which operands they are of.
  struct Statistics {
    std::vector<Matrix> bytes;
    std::vector<std::size_t> indices;
  };
  const Statistics& statistics_so_far() const { return statistics_; }

  /// Numbers of so many layers from a copy of `bytes`.
  static HostNumbers from_bytes(std::span<const std::byte> bytes, std::size_t layers);
  std::size_t layers() const { return layers_; }

  /// The squares of gradients, one per layer and GEMM.
  const double* squares() const { return static_cast<const double*>(bytes_.data); }

  /// The totals of errors, `kErrorPlaces` per layer.
  const kernels::ErrorTotals* errors() const;

  /// Where the largest magnitudes are, one per layer and operand, for callers that replace them.
  float* amaxes() const;
  void set_seen(std::span<const float> amaxes);

  /// The state of delayed scaling, one per layer, GEMM and place that has it; waits for the device.
  std::vector<formats::DelayedState> save() const;

  /// Takes it over; waits for the device.
  void load(const std::vector<formats::DelayedState>& states);

  double* square(std::size_t layer, recipes::Product product);
  kernels::TotalsPlace error(std::size_t layer, std::size_t place);

  /// Where a sample of the rows of a GEMM goes; one that waits there already is judged.
  kernels::SamplePlace sample(std::size_t layer, recipes::Product product);

  /// Judges all samples that wait; to be called before the totals of errors are read.
  void judge_samples();

  /// Whether an operand was seen in this step; where its amax goes: it counts as seen from here on.
  bool has_seen(std::size_t layer, recipes::Operand operand) const;
  float* amax(std::size_t layer, recipes::Operand operand);

  /// The scale of an operand; null before the first observation: then it is that of the matrix itself.
  const float* delayed_scale(std::size_t layer, recipes::Product product, std::size_t place) const;

  /// Room for what one quantization does, to be written by it.
  formats::Statistics* statistics(std::size_t layer, recipes::Product product, std::size_t place);

 private:
  const FrontEnd& front_end_;
  std::size_t layers_;
  Matrix bytes_;                     // everything that is read after a step: squares, totals of errors, amaxes
  Matrix doubles_;                   // the first part of it
  Matrix amaxes_;                    // the second
  Matrix tickets_;                   // of kernels that add errors, 0 between them: one per layer and place
  Matrix slots_;                     // of samples, one per layer and GEMM; undefined before the first
  std::vector<std::uint8_t> waits_;  // whether a sample waits there
  Statistics statistics_;
  std::unique_ptr<kernels::DelayedScales> delayed_;          // null: the recipe has none
  std::vector<std::optional<std::uint32_t>> delayed_index_;  // of each layer, GEMM and place
  std::vector<std::uint8_t> has_observation_;                // whether a scale has had an observation
  std::vector<std::uint8_t> seen_;                           // whether a layer's operand was seen in this step
};

/// The numbers of one layer.
class LayerNumbers {
 public:
  LayerNumbers(DeviceNumbers& all, std::size_t layer) : all_(all), layer_(layer) {}

  double* square(recipes::Product product) const { return all_.square(layer_, product); }
  kernels::TotalsPlace error(std::size_t place) const { return all_.error(layer_, place); }
  kernels::SamplePlace sample(recipes::Product product) const { return all_.sample(layer_, product); }
  bool has_seen(recipes::Operand operand) const { return all_.has_seen(layer_, operand); }
  float* amax(recipes::Operand operand) const { return all_.amax(layer_, operand); }
  const float* delayed_scale(recipes::Product product, std::size_t place) const {
    return all_.delayed_scale(layer_, product, place);
  }
  formats::Statistics* statistics(recipes::Product product, std::size_t place) const {
    return all_.statistics(layer_, product, place);
  }

 private:
  DeviceNumbers& all_;
  std::size_t layer_;
};

/// Those of a layer; a layer without units gets its own.
LayerNumbers numbers_of(const FrontEnd& front_end, LinearPaths& paths, const Matrix& on);

}  // namespace gnmr::low
