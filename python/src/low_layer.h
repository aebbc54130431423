// SPDX-License-Identifier: Apache-2.0
// The low path of one layer of a Python model: gnmr/low/linear.h with tensors of torch.
//
// Goals: state, quantization, GEMMs, patrol and trial are those of the engine, to the bit; the layer's state goes with
// the layer to another device; nothing waits for a device but what says so. Non-goals: autograd, biases, hooks on
// modules (gnmr.low.linear).
//
// It belongs to one thread at a time; tensors are of the current stream of their device.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "front_end.h"
#include "gnmr/low/linear.h"

namespace gnmr::python {

using recipes::Product;

/// A factor on each low result: a fault that a test plants.
class PlantedFactor final : public low::MatrixHook {
 public:
  PlantedFactor(const PythonFrontEnd& front_end, double factor) : front_end_(front_end), factor_(factor) {}

  low::Matrix before_quantizing(const low::LowPathCall&, recipes::Operand, const low::Matrix& matrix) override {
    return matrix;
  }
  low::Matrix while_quantizing(const low::LowPathCall&, recipes::Operand, const low::Matrix& matrix) override {
    return matrix;
  }
  bool changes_quantized(const low::LowPathCall&, recipes::Operand) const override { return false; }
  low::Matrix after_quantizing(const low::LowPathCall&, recipes::Operand, const low::Matrix& matrix) override {
    return matrix;
  }
  bool changes_operands() const override { return false; }
  low::Matrix after_gemm(const low::LowPathCall&, const low::Matrix& result) override;

 private:
  const PythonFrontEnd& front_end_;
  double factor_;
};

/// The path of all GEMMs of a layer.
enum class LayerPath : std::uint8_t { low, recovery, high };

/// Puts it in force; `recovery`: as the recipe says.
void take_path(low::LinearPaths& paths, LayerPath path);

/// One forward, as Python asks for it.
struct ForwardRequest {
  bool trains = true;        // amax histories and measurements go on
  bool keeps_input = true;   // backward has a use for the quantized input
  bool keeps_weight = true;  // likewise
};

/// The low path of one layer; without a recipe only what it measures.
class LowLayer {
 public:
  LowLayer(std::shared_ptr<const PythonFrontEnd> front_end, std::shared_ptr<const recipes::Recipe> recipe,
           std::uint32_t layer, std::shared_ptr<const low::StepClock> clock);

  /// What random signs are of, for layers without a recipe that are found before the clock is there.
  void set_clock(std::shared_ptr<const low::StepClock> clock, std::uint32_t layer);

  /// The path of the next forwards, and what is compared beside them.
  void set_path(LayerPath path) { take_path(paths_, path); }
  void set_comparison(low::Comparison comparison) { paths_.comparison = comparison; }
  low::Comparison comparison() const { return paths_.comparison; }
  void plant_factor(std::optional<double> factor);

  /// When delayed scales are renewed early, as `formats::Refresh::factor`.
  void set_refresh(float factor) { refresh_.factor = factor; }
  float refresh() const { return refresh_.factor; }

  /// A step begins, or begins again; it ends.
  void begin_step();
  void end_step();

  /// The result, and `low::Saved::kParts` tensors for backward, None where there is nothing.
  nb::tuple forward(nb::handle input, nb::handle weight, const ForwardRequest& request, low::SharedOperands* shared);

  /// The gradients of input and weight, None where they are not wanted; `path`: that of the forward.
  nb::tuple backward(const nb::list& parts, LayerPath path, nb::handle gradient, bool wants_input, bool wants_weight);

  /// The amax history takes in an operand, which is not quantized.
  void observe(std::size_t operand, nb::handle matrix);

  /// An operand as `quantized_parts` gives it, with this layer's amax histories; `both`: for the other GEMM that takes
  /// it too. `is_first`: of this operand in a step that trains.
  nb::list quantize(std::size_t product, std::size_t place, nb::handle matrix, bool both, bool is_first);

  /// Adds to the measurements of this step: how far a low result is from the high one, a squared norm.
  void add_error(std::size_t place, nb::handle low, nb::handle high);
  void add_square(nb::handle matrix);

  /// The same by samples: how far the low result of a GEMM of two operands is from what the high path would make.
  void add_sampled_error(std::size_t product, nb::handle low, nb::handle left, nb::handle right);

  /// What was measured in this step; waits for a device. One sum per GEMM, without those of stale scales, which the end
  /// of the step renews; the squared norm, where there is one.
  std::array<low::ErrorSums, recipes::kProductCount> error_sums() const;
  std::optional<double> square() const;
  bool has_square() const { return paths_.measured.front().sampled; }

  /// Where it is on a device: doubles, three squares and then three sums for each of four places; else None.
  nb::object sums_on_device() const;
  /// What a patrol ends with: the sums of each GEMM, NaN where nothing was measured; a tensor where they are on a
  /// device.
  nb::object patrol_sums() const;

  /// The whole state, as text; waits for a device.
  std::string save() const;

  /// Scales that were renewed before their interval was over, so far; waits for a device.
  std::uint64_t refreshes() const;
  void restore(std::string_view text);

 private:
  void settle(const low::Matrix& on);
  low::ErrorPlace error_place(std::size_t product, const low::Matrix& on);
  bool has_sums_on_device() const { return paths_.numbers != nullptr && used_device_; }
  void finish_errors() const;
  std::vector<formats::DelayedState> states() const;
  bool has_history() const;

  std::shared_ptr<const PythonFrontEnd> front_end_;
  low::LinearPaths paths_;
  std::unique_ptr<PlantedFactor> planted_;
  bool used_device_ = false;  // in this step
  formats::Refresh refresh_;
};

}  // namespace gnmr::python
