// SPDX-License-Identifier: Apache-2.0
// The recoverable units of a model: found by walking its modules, switched between steps, measured after them.
//
//   RecoverableUnits units(model, recipe, {.granularity = Granularity::layer});
//   Controller controller(units.units(), options);
//   for each step: units.request(high); units.begin_step(step); forward, backward; units.end_step();
//                  units.norms(squares of all parameters' gradients) -> controller.step -> what is high next
//
// Goals: units in forward order with names people know; a switch that nobody can move within a step.
// Non-goals: deciding; summing over processes (the caller does, between the two halves of the measurement).
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gnmr/core/step.h"
#include "gnmr/core/types.h"
#include "gnmr/kernels/unit_gather.h"
#include "gnmr/torch/device_numbers.h"
#include "gnmr/torch/switchable_linear.h"

namespace gnmr::nn {

/// What one unit is.
enum class Granularity : std::uint8_t { layer, product, block };

/// Which linear layers have a low path, and how they are cut into units.
struct UnitSelection {
  Granularity granularity = Granularity::layer;
  std::vector<std::string> allow = {"*"};    // globs of layers that take the low path
  std::vector<std::string> deny = {"head"};  // globs of layers that do not, and are not watched
  std::vector<std::string> forced = {};      // globs of units that the user switches, not the controller
  bool save_in_8_bits = false;               // inputs wait for backward in 8 bits; a unit more for each layer
  bool recast_weights = false;               // weights are quantized again in backward
};

/// How much of a model is watched.
struct Coverage {
  std::size_t units = 0;
  std::size_t layers = 0;         // linear layers with a unit
  std::size_t all_layers = 0;     // linear layers
  double multiply_add_share = 0;  // of all linear layers' multiply-adds
  std::vector<std::string> left_out = {};

  /// One line: `28 units: 28 of 29 linear layers, 96.4% of multiply-adds; left out: head`.
  std::string text() const;
};

/// What quantization did to a unit's operands in one step, all micro-batches together.
struct CastEvidence {
  bool measured = false;      // whether anything was quantized and measured
  double relative_error = 0;  // root of the summed squares, relative to the values
  double saturated = 0;       // share of the elements that were beyond the format
  double flushed = 0;         // share that became 0
};

/// The units of one model. It changes the model's switches and nothing else; the model must outlive it.
class RecoverableUnits {
 public:
  /// Gives each chosen layer the low path of `recipe`; null: all stay high and are only measured. `seed` is that of
  /// stochastic rounding.
  RecoverableUnits(const torch::nn::Module& model, std::shared_ptr<const Recipe> recipe, const UnitSelection& selection,
                   std::uint64_t seed = 0);

  const std::vector<Unit>& units() const { return units_; }
  const Coverage& coverage() const { return coverage_; }

  /// The units that are high from the next `begin_step` on; all others are low. Those of them that are in recovery run
  /// what the recipe recovers to.
  void request(std::span<const UnitIndex> high, std::span<const UnitIndex> in_recovery = {});

  /// Of these units, the low paths of those that run high are measured beside the next step, if it is a plain one, as
  /// in a trial; whatever the patrol's turn.
  void measure_high(std::span<const UnitIndex> units);

  /// Puts the request in force and forgets what was measured.
  void begin_step(std::int64_t step, PassKind pass = PassKind::step) { begin_step(step, pass, pass != PassKind::step); }

  /// The same where that does not say whether the step has run before: a trial may be the first run of its batch.
  void begin_step(std::int64_t step, PassKind pass, bool again);

  /// Lets a laboratory reach into the low paths, or into one layer's; null: nobody. It outlives the steps.
  void set_hook(LowPathHook* hook);
  void set_hook(std::size_t layer, LowPathHook* hook);

  /// Whether some GEMM of a layer, by its place in `layer_names`, runs low in this step.
  bool runs_low(std::size_t layer) const;

  /// Compares GEMMs that run low with their high paths beside each step, of as many layers in turn as cost at most
  /// this share of a step's multiply-adds (at least one layer a step; 0: none, 1: all), for micro-batches of so many
  /// tokens. On a GPU what it reads counts as the multiply-adds that could have been made meanwhile.
  void patrol(double share, std::int64_t tokens);

  /// What the patrol does, in words: `all 28 layers each step, 1.9% of a step's multiply-adds`.
  std::string patrol_text() const;

  /// What was measured in a step, some of it on its way from the device.
  struct Measurements {
    NumbersOnTheWay numbers;
    std::vector<std::array<ProductMeasurement, kProductCount>> on_host;  // of each layer; empty: nothing is
  };

  /// Before `device_numbers` are read on their device, and nothing waits: samples of a patrol are judged, and errors
  /// that the end of the step answers with a new scale were not measured.
  void finish_errors(const formats::Refresh& refresh);

  /// What was measured in this step, to be called after `finish_errors`; null where all of it is on the host.
  std::unique_ptr<Measurements> send_measurements() const;

  /// The same, all but the bytes of `device_numbers`, which the caller brings to `take_measurements`.
  std::unique_ptr<Measurements> send_other_measurements() const;

  /// What was measured and is asked for below is this from now on, waiting for it; nothing where it is null.
  void take_measurements(Measurements* measurements);
  void take_measurements(Measurements* measurements, std::span<const std::byte> numbers);

  /// Whether some unit's norm is that of its GEMMs' gradients: then `norm_lists` may differ in each step.
  bool has_norms_of_products() const { return measures_products_; }

  /// Which sums of squares make the units' norms, for those who have them on a device: those of the parameters, then
  /// the squares of GEMMs.
  kernels::UnitLists norm_lists(std::span<const std::uint8_t> has_gradient) const;

  /// Where numbers of the layers are on a device; null: they are on the host.
  const low::DeviceNumbers* device_numbers() const { return numbers_.get(); }

  /// What the low paths' comparisons came to, one per layer and place (the three GEMMs, then the saved input), as
  /// sums of squares: differences, references, and 1 where measured; those of other processes are to be added.
  std::vector<double> error_sums() const;

  /// Errors of all units from these sums: units times `kProductCount`, NaN where nothing was measured. Of a unit with
  /// several layers it is the worst one's.
  std::vector<double> errors(std::span<const double> error_sums) const;

  /// Which totals of `device_numbers` make the error of each site of each unit, for those who judge them on a device.
  kernels::UnitLists error_lists() const;

  /// In the shape of `errors`, 1: the end of the step will renew a scale early that this error may come from. On a
  /// device the host does not know, and there are none.
  std::vector<std::uint8_t> stale_sites(const formats::Refresh& refresh) const;

  /// The error that the recipe's formats have in each place; 0: not known.
  std::vector<double> expected_errors() const;

  /// What quantization did to the operands of each GEMM, the worse of the two, in the shape of `errors`; needs
  /// `measure_casts`.
  std::vector<double> cast_errors() const;

  /// Coefficients of parameters from those of units: a unit's own go to what its norm is made from, all others have 1.
  std::vector<double> parameter_coefficients(std::span<const double> unit_coefficients) const;

  /// Bytes that a trial holds beyond a step of the low path, at most: inputs that wait in 8 bits otherwise, and the
  /// largest results of a low path beside the high one. For micro-batches of so many tokens.
  std::int64_t trial_bytes(std::int64_t tokens) const;

  /// Sets the micro-batch for stochastic rounding.
  void begin_micro_batch(std::int64_t micro_batch) { clock_->micro_batch = micro_batch; }

  /// Updates the low paths' state with the step.
  void end_step(const formats::Refresh& refresh = {});

  /// Scales that were renewed early so far; waits for the device.
  std::uint64_t refreshes() const;

  /// Whether a unit is high in this step.
  bool is_high(UnitIndex unit) const { return in_force_[unit] != kLow; }

  /// How many are.
  std::size_t high_count() const;

  /// The share of the units' multiply-adds that the pass which runs has in high precision, or ran: 1 of a trial.
  double high_cost_share() const;

  /// The model's parameters, in the order that `norms` expects.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  /// Sums of squares that only the GEMMs saw, one per unit; what other processes measured is to be added.
  std::vector<double> product_squares() const;

  /// Largest magnitudes of this step, one per layer and operand; those of other processes count where they are larger.
  std::vector<float> step_amaxes() const;
  void set_step_amaxes(std::span<const float> amaxes);

  /// Norms and samples of all units.
  struct Norms {
    std::vector<double> values;
    std::vector<std::uint8_t> sampled;
  };

  /// Norms from the sums of squares of the parameters' gradients and from `product_squares`. `has_gradient` has one
  /// entry a parameter.
  Norms norms(std::span<const double> parameter_squares, std::span<const std::uint8_t> has_gradient,
              std::span<const double> product_squares) const;

  /// Measures quantization from the next step on.
  void measure_casts(bool wanted);

  /// What quantization did to a unit in this step: the worst of its operands in each respect.
  CastEvidence evidence(UnitIndex unit) const;

  /// The low paths' state, by name; for checkpoints.
  std::vector<std::pair<std::string, at::Tensor>> memory() const;

  /// Takes it over; an `Error` for what no low path of this recipe can have left.
  void restore_memory(const std::vector<std::pair<std::string, at::Tensor>>& memory);

  /// The watched layers, in forward order.
  std::vector<std::string> layer_names() const;

 private:
  friend class EvaluationPaths;
  friend class UnobservedPaths;
  struct Layer {
    std::string name;
    std::shared_ptr<SwitchableLinearImpl> module;
    std::vector<std::size_t> parameters;  // indices
    bool frozen;                          // nothing in it is trainable
  };
  struct Part {  // what a unit has of one layer
    std::size_t layer;
    std::array<bool, kProductCount> products;
    bool saved;
  };
  struct Source {
    std::vector<Part> parts;
    bool by_products = false;                        // its norm is that of its GEMMs' gradients, not of parameters
    std::vector<std::size_t> other_parameters = {};  // of a block: those that are no linear layer's
  };

  enum UnitPath : std::uint8_t { kLow, kHigh, kRecovery };

  void find_layers(const torch::nn::Module& model, const UnitSelection& selection);
  void make_units(const UnitSelection& selection);
  void add_unit(Unit unit, Source source, const UnitSelection& selection);
  void add_other_parameters(const torch::nn::Module& model);
  void count_coverage(const torch::nn::Module& model);
  void apply_unit_paths();
  template <class Visit>
  void for_measured_products(std::size_t unit, Visit visit) const;
  bool measured_products(std::size_t unit) const;
  bool is_patrolled(std::size_t layer) const;
  static bool measures_norm(const Part& part, std::size_t product);
  void use_device();
  std::unique_ptr<Measurements> measurements_with(NumbersOnTheWay numbers) const;
  void take(Measurements& measurements, const low::HostNumbers& numbers);

  std::shared_ptr<const Recipe> recipe_;
  std::shared_ptr<StepClock> clock_;
  std::shared_ptr<low::DeviceNumbers> numbers_;  // null: everything is on the host
  std::shared_ptr<PinnedPool> pool_ = std::make_shared<PinnedPool>();
  std::vector<at::Tensor> parameters_;
  std::vector<Layer> layers_;
  std::vector<Unit> units_;
  std::vector<Source> sources_;
  std::vector<std::uint8_t> requested_;   // per unit, a UnitPath
  std::vector<UnitIndex> measured_high_;  // in the next step
  std::vector<std::uint8_t> in_force_;    // likewise
  PassKind pass_ = PassKind::step;        // of the last step that began
  bool save_in_8_bits_ = false;
  bool measures_products_ = false;  // of some layer
  bool measures_casts_ = false;
  std::vector<std::uint32_t> patrol_round_;  // of each layer; empty: no patrol
  std::uint32_t patrol_rounds_ = 0;
  double patrol_share_ = 0;  // of a step's multiply-adds, the dearest round's
  Coverage coverage_;
};

/// Which path each unit takes in an evaluation.
enum class EvaluatedPath : std::uint8_t {
  high,
  low,
  trained,  // the one that it had in the last step: high where it was in recovery or always high
};

/// While it lives units run on the path that it names, no state changes and nothing is measured.
class EvaluationPaths {
 public:
  EvaluationPaths(RecoverableUnits& units, EvaluatedPath path);
  ~EvaluationPaths();
  EvaluationPaths(const EvaluationPaths&) = delete;
  EvaluationPaths& operator=(const EvaluationPaths&) = delete;

 private:
  RecoverableUnits& units_;
  std::vector<LinearPaths> kept_;
};

/// While it lives no state changes and nothing is measured; paths stay as they are.
class UnobservedPaths {
 public:
  explicit UnobservedPaths(RecoverableUnits& units);
  ~UnobservedPaths();
  UnobservedPaths(const UnobservedPaths&) = delete;
  UnobservedPaths& operator=(const UnobservedPaths&) = delete;

 private:
  RecoverableUnits& units_;
  std::vector<bool> observed_;  // before, one per layer
};

}  // namespace gnmr::nn
