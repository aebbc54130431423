// SPDX-License-Identifier: Apache-2.0
#include "low_layer.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "gnmr/low/device_numbers.h"
#include "gnmr/recipes/delayed_states.h"
#include "recipe_places.h"

namespace gnmr::python {
namespace {

using low::Comparison;
using low::ErrorSums;
using low::LowOperand;
using low::Matrix;
using low::OperandUse;
using low::Place;
using low::Saved;
using low::StepClock;
using recipes::kProductCount;
using recipes::Recipe;
using Unlocked = nb::gil_scoped_release;

/// How an operand is used; `both`: by the two GEMMs that may take the same.
OperandUse use_of(std::size_t product, std::size_t place, bool both) {
  for (const OperandUse& known : {low::kInputUse, low::kWeightUse, low::kGradientUse}) {
    if (known.product == product_of(product) && known.place == place) {
      OperandUse use = known;
      use.shared = both;
      return use;
    }
  }
  return {.product = product_of(product), .place = place};
}

/// FP8 data and scales of the sides that there are, or numbers.
nb::list parts_of(const LowOperand& operand) {
  nb::list parts;
  if (operand.values.defined()) parts.append(tensor_of(operand.values));
  for (const low::Fp8Side* side : {&operand.codes.by_rows, &operand.codes.by_columns}) {
    if (!side->codes.defined()) continue;
    parts.append(tensor_of(side->codes));
    parts.append(tensor_of(side->scales));
  }
  return parts;
}

/// The operand of a GEMM again, of one side or of numbers.
LowOperand operand_of_parts(const Recipe& recipe, Product product, std::size_t place, const nb::list& parts) {
  if (nb::len(parts) == 1) return {.values = matrix_of(parts[0])};
  LowOperand operand;
  operand.codes.grouping = rule_of(recipe, static_cast<std::size_t>(product), place).grouping;
  const bool sums_over_rows = low::sums_over(product)[place] == low::SumOver::rows;
  low::Fp8Side& side = sums_over_rows ? operand.codes.by_columns : operand.codes.by_rows;
  side = {matrix_of(parts[0]), matrix_of(parts[1])};
  return operand;
}

}  // namespace

void take_path(low::LinearPaths& paths, LayerPath path) {
  paths.run_all(path != LayerPath::high);
  if (path != LayerPath::recovery || paths.recipe == nullptr) return;
  for (std::size_t product = 0; product < kProductCount; ++product) paths.recover(product);
}

namespace {

/// While it lives all GEMMs of a layer run on the path of their forward.
class PathAs {
 public:
  PathAs(low::LinearPaths& paths, LayerPath path) : paths_(paths), low_(paths.low), recovers_(paths.recovers) {
    take_path(paths, path);
  }
  ~PathAs() {
    paths_.low = low_;
    paths_.recovers = recovers_;
  }
  PathAs(const PathAs&) = delete;
  PathAs& operator=(const PathAs&) = delete;

 private:
  low::LinearPaths& paths_;
  std::array<bool, kProductCount> low_;
  std::array<bool, kProductCount> recovers_;
};

}  // namespace

Matrix PlantedFactor::after_gemm(const low::LowPathCall&, const Matrix& result) {
  const nb::gil_scoped_acquire lock;
  return matrix_of(tensor_of(result).attr("__mul__")(factor_));
}

LowLayer::LowLayer(std::shared_ptr<const PythonFrontEnd> front_end, std::shared_ptr<const Recipe> recipe,
                   std::uint32_t layer, std::shared_ptr<const StepClock> clock)
    : front_end_(std::move(front_end)) {
  paths_.recipe = std::move(recipe);
  paths_.layer = layer;
  paths_.clock = std::move(clock);
}

void LowLayer::set_clock(std::shared_ptr<const StepClock> clock, std::uint32_t layer) {
  paths_.clock = std::move(clock);
  paths_.layer = layer;
}

void LowLayer::plant_factor(std::optional<double> factor) {
  planted_ = factor ? std::make_unique<PlantedFactor>(*front_end_, *factor) : nullptr;
  paths_.hook = planted_.get();
}

void LowLayer::begin_step() {
  paths_.begin_step();
  if (paths_.numbers == nullptr || !used_device_) return;
  const OnDeviceOf current(*front_end_, paths_.numbers->matrix());
  paths_.numbers->begin_step();
  used_device_ = false;
}

void LowLayer::end_step() {
  if (paths_.numbers == nullptr) {
    paths_.end_step(refresh_);
  } else if (used_device_) {
    const OnDeviceOf current(*front_end_, paths_.numbers->matrix());
    paths_.numbers->end_step(refresh_);
  }
}

bool LowLayer::has_history() const {
  bool found = false;
  if (paths_.recipe != nullptr) {
    recipes::for_delayed(*paths_.recipe, [&](std::size_t, std::size_t, const recipes::CastRule&) { found = true; });
  }
  return found;
}

/// Measurements and histories are where the operands are.
void LowLayer::settle(const Matrix& on) {
  const bool is_there = on.place == Place::device;
  used_device_ = used_device_ || is_there;
  if (is_there ? paths_.numbers != nullptr && paths_.numbers->device() == on.device : paths_.numbers == nullptr) return;
  const std::vector<formats::DelayedState> before = states();
  paths_.numbers.reset();
  if (!is_there) {
    if (paths_.recipe != nullptr) paths_.amax.set_states(*paths_.recipe, before);
  } else if (has_history()) {
    low::numbers_of(*front_end_, paths_, on);
    paths_.numbers->load(before);
  }
}

nb::tuple LowLayer::forward(nb::handle input, nb::handle weight, const ForwardRequest& request,
                            low::SharedOperands* shared) {
  const Matrix left = matrix_of(input);
  const Matrix right = matrix_of(weight);
  low::ForwardResult made;
  {
    const Unlocked unlocked;
    const OnDeviceOf current(*front_end_, left);
    settle(left);
    paths_.observing = request.trains;
    made = low::forward(
        *front_end_, paths_, left, right,
        {.shared = shared, .keeps_low_input = request.keeps_input, .keeps_low_weight = request.keeps_weight});
  }
  nb::list kept;
  for (const Matrix& part : made.saved.parts()) kept.append(tensor_of(part));
  return nb::make_tuple(tensor_of(made.output), kept);
}

nb::tuple LowLayer::backward(const nb::list& parts, LayerPath layer_path, nb::handle gradient, bool wants_input,
                             bool wants_weight) {
  std::array<Matrix, Saved::kParts> matrices;
  if (nb::len(parts) != matrices.size()) throw Error("[backward] expected what forward kept");
  for (std::size_t index = 0; index < matrices.size(); ++index) matrices[index] = matrix_of(parts[index]);
  const Matrix given = matrix_of(gradient);
  low::Gradients made;
  {
    const Unlocked unlocked;
    const OnDeviceOf current(*front_end_, given);
    settle(given);
    paths_.observing = true;
    const PathAs path(paths_, layer_path);
    made = low::backward(*front_end_, paths_, Saved::from_parts(paths_.recipe.get(), matrices), given, wants_input,
                         wants_weight);
  }
  return nb::make_tuple(tensor_of(made.input), tensor_of(made.weight));
}

void LowLayer::observe(std::size_t operand, nb::handle matrix) {
  const Matrix given = matrix_of(matrix);
  const Unlocked unlocked;
  const OnDeviceOf current(*front_end_, given);
  settle(given);
  paths_.observing = true;
  const bool is_gradient = operand_of(operand) == recipes::Operand::output_gradient;
  low::observe(*front_end_, paths_, is_gradient ? Product::input_gradient : Product::forward, is_gradient ? 0 : operand,
               given);
}

nb::list LowLayer::quantize(std::size_t product, std::size_t place, nb::handle matrix, bool both, bool is_first) {
  const Matrix given = matrix_of(matrix);
  const OperandUse use = use_of(product, place, both);
  LowOperand made;
  {
    const Unlocked unlocked;
    const OnDeviceOf current(*front_end_, given);
    settle(given);
    paths_.observing = is_first;
    if (is_first) low::observe(*front_end_, paths_, use.product, use.place, given);
    made = low::low_operand(*front_end_, paths_, use, given);
  }
  return parts_of(made);
}

void LowLayer::add_error(std::size_t place, nb::handle low, nb::handle high) {
  const Matrix one = matrix_of(low);
  const Matrix other = matrix_of(high);
  const auto product = static_cast<std::size_t>(product_of(place));
  const Unlocked unlocked;
  const OnDeviceOf current(*front_end_, other);
  settle(other);
  low::add_error(*front_end_, one, other, error_place(product, other));
}

void LowLayer::add_sampled_error(std::size_t place, nb::handle low, nb::handle left, nb::handle right) {
  const Matrix one = matrix_of(low);
  const Matrix first = matrix_of(left);
  const Matrix second = matrix_of(right);
  const Product product = product_of(place);
  const Unlocked unlocked;
  const OnDeviceOf current(*front_end_, one);
  settle(one);
  const low::ProbeSeeds seeds = low::probe_seeds(paths_, product);
  const low::ErrorPlace to = error_place(place, one);
  if (product == Product::weight_gradient) {
    low::add_weight_error(*front_end_, one, first, low::project_input(*front_end_, second, seeds.signs), seeds, to);
  } else if (product == Product::forward) {
    const Matrix signs = low::project_weight(*front_end_, second, seeds.signs, std::nullopt).of_inputs;
    low::add_rows_error(*front_end_, one, first, signs, seeds, to);
  } else {
    const Matrix signs = low::project_weight(*front_end_, second, std::nullopt, seeds.signs).of_outputs;
    low::add_rows_error(*front_end_, one, first, signs, seeds, to);
  }
}

/// Where errors of a GEMM whose matrices lie like `on` are added up.
low::ErrorPlace LowLayer::error_place(std::size_t product, const Matrix& on) {
  if (on.place == Place::device) return {.on_device = low::numbers_of(*front_end_, paths_, on).error(product)};
  return {.sums = &paths_.measured[product].error};
}

void LowLayer::add_square(nb::handle matrix) {
  const Matrix given = matrix_of(matrix);
  const Unlocked unlocked;
  const OnDeviceOf current(*front_end_, given);
  settle(given);
  low::ProductMeasurement& measured = paths_.measured.front();
  measured.sampled = true;
  if (given.place == Place::device) {
    low::add_square(*front_end_, given, low::numbers_of(*front_end_, paths_, given).square(Product::forward));
  } else {
    measured.squared_norm += low::squared_norm(*front_end_, given);
  }
}

/// On a device, and without a wait: errors that the end of the step answers with a new scale were not measured.
void LowLayer::leave_out_answered() const {
  if (!(refresh_.factor > 0)) return;
  const OnDeviceOf current(*front_end_, paths_.numbers->matrix());
  paths_.numbers->leave_out_answered(refresh_);
}

std::array<ErrorSums, kProductCount> LowLayer::error_sums() const {
  std::array<ErrorSums, kProductCount> sums;
  for (std::size_t product = 0; product < kProductCount; ++product) {
    if (!paths_.is_stale(static_cast<Product>(product), refresh_)) sums[product] = paths_.measured[product].error;
  }
  if (!has_sums_on_device()) return sums;
  leave_out_answered();
  const Matrix copy = front_end_->bytes_on_host(paths_.numbers->matrix());
  const low::HostNumbers numbers = low::DeviceNumbers::from_bytes(
      {static_cast<const std::byte*>(copy.data), static_cast<std::size_t>(copy.rows)}, 1);
  for (std::size_t product = 0; product < kProductCount; ++product) {
    const kernels::ErrorTotals& totals = numbers.errors[product];
    if (totals.measured > 0) sums[product] = {totals.difference, totals.reference, true};
  }
  return sums;
}

std::optional<double> LowLayer::square() const {
  const low::ProductMeasurement& measured = paths_.measured.front();
  if (!measured.sampled) return std::nullopt;
  if (!has_sums_on_device()) return measured.squared_norm;
  const Matrix copy = front_end_->bytes_on_host(paths_.numbers->matrix());
  return low::DeviceNumbers::from_bytes({static_cast<const std::byte*>(copy.data), static_cast<std::size_t>(copy.rows)},
                                        1)
      .squares.front();
}

nb::object LowLayer::sums_on_device() const {
  return has_sums_on_device() ? tensor_of(paths_.numbers->matrix()) : nb::none();
}

nb::object LowLayer::patrol_sums() const {
  constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
  if (has_sums_on_device()) {
    leave_out_answered();
    const nb::object bytes = sums_on_device();
    const nb::object numbers = bytes.attr("narrow")(0, 3 * sizeof(double), 3 * kProductCount * sizeof(double));
    const nb::object sums = numbers.attr("view")(nb::module_::import_("torch").attr("float64")).attr("view")(-1, 3);
    return sums.attr("narrow")(1, 0, 2).attr("where")(sums.attr("narrow")(1, 2, 1).attr("gt")(0), kNothing);
  }
  std::vector<std::pair<double, double>> sums;
  for (const ErrorSums& one : error_sums()) {
    const bool is_known = !std::isnan(one.error());
    sums.emplace_back(is_known ? one.difference : kNothing, is_known ? one.reference : kNothing);
  }
  return nb::cast(sums);
}

std::vector<formats::DelayedState> LowLayer::states() const {
  if (paths_.recipe == nullptr) return {};
  if (paths_.numbers == nullptr) return paths_.amax.states(*paths_.recipe);
  const OnDeviceOf current(*front_end_, paths_.numbers->matrix());
  return paths_.numbers->save();
}

std::string LowLayer::save() const { return recipes::delayed_states_text(states()); }

std::uint64_t LowLayer::refreshes() const {
  std::uint64_t count = 0;
  for (const formats::DelayedState& state : states()) count += state.refreshes;
  return count;
}

void LowLayer::restore(std::string_view text) {
  if (paths_.recipe == nullptr) throw Error("[restore] without a recipe there is no state");
  const std::vector<formats::DelayedState> states = recipes::parse_delayed_states(*paths_.recipe, text);
  if (paths_.numbers == nullptr) {
    paths_.amax.set_states(*paths_.recipe, states);
    return;
  }
  const OnDeviceOf current(*front_end_, paths_.numbers->matrix());
  paths_.numbers->load(states);
}

namespace {

void bind_layer(nb::module_& module) {
  nb::enum_<LayerPath>(module, "LayerPath", "The path of a layer's GEMMs.")
      .value("low", LayerPath::low)
      .value("recovery", LayerPath::recovery, "What the recipe recovers to.")
      .value("high", LayerPath::high);
  nb::enum_<Comparison>(module, "Comparison", "What is compared beside the steps of a layer.")
      .value("none", Comparison::none)
      .value("patrol", Comparison::projected, "Low results with samples of the high ones, beside the step.")
      .value("trial", Comparison::full, "Results are those of the high path; low ones are made and compared.");
  nb::class_<low::SharedOperands>(module, "SharedOperands",
                                  "What layers with one input share of it: what their low paths make of it.")
      .def(nb::init<>());
  nb::class_<LowLayer> layer(module, "LowLayer", "The low path of one layer; without a recipe what is measured of it.");
  layer
      .def(nb::init<std::shared_ptr<PythonFrontEnd>, std::shared_ptr<Recipe>, std::uint32_t,
                    std::shared_ptr<StepClock>>(),
           "front_end"_a, "recipe"_a.none(), "layer"_a = 0, "clock"_a.none() = nb::none())
      .def("set_clock", &LowLayer::set_clock, "clock"_a, "layer"_a,
           "What random signs of samples are of: the step, and the number of the layer.")
      .def("set_path", &LowLayer::set_path, "path"_a, "The path of the next forwards.")
      .def_prop_rw("comparison", &LowLayer::comparison, &LowLayer::set_comparison)
      .def("plant_factor", &LowLayer::plant_factor, "factor"_a.none(), "A fault on each low result; None: no more.")
      .def("begin_step", &LowLayer::begin_step, nb::call_guard<Unlocked>(), "A step begins, or begins again.")
      .def("end_step", &LowLayer::end_step, nb::call_guard<Unlocked>(), "The amax history takes the step in.")
      .def_prop_rw("refresh", &LowLayer::refresh, &LowLayer::set_refresh,
                   "A scale that its history no longer fits by this factor is renewed early; 0: never.")
      .def_prop_ro("refreshes", &LowLayer::refreshes, "Scales that were renewed early so far; waits for a device.");
  layer
      .def(
          "forward",
          [](LowLayer& self, nb::handle input, nb::handle weight, bool trains, bool keeps_input, bool keeps_weight,
             low::SharedOperands* shared) {
            return self.forward(input, weight, {trains, keeps_input, keeps_weight}, shared);
          },
          "input"_a, "weight"_a, "trains"_a, "keeps_input"_a, "keeps_weight"_a, "shared"_a.none() = nb::none(),
          nb::sig("def forward(self, input: object, weight: object, trains: bool, keeps_input: bool, "
                  "keeps_weight: bool, shared: SharedOperands | None = None) -> tuple[typing.Any, list[typing.Any]]"),
          "The result of an input [tokens, inputs] and a weight [outputs, inputs], and tensors (or None) for backward.")
      .def("backward", &LowLayer::backward, "parts"_a, "path"_a, "gradient"_a, "wants_input"_a, "wants_weight"_a,
           nb::sig("def backward(self, parts: list[typing.Any], path: LayerPath, gradient: object, wants_input: bool, "
                   "wants_weight: bool) -> tuple[typing.Any, typing.Any]"),
           "The gradients of input and weight, on the path of the forward; None where they are not wanted.")
      .def("observe", &LowLayer::observe, "operand"_a, "matrix"_a,
           "The amax history takes in an operand (0 input, 1 weight, 2 output gradient) that is not quantized.")
      .def("quantize", &LowLayer::quantize, "product"_a, "place"_a, "matrix"_a, "both"_a, "is_first"_a,
           nb::sig("def quantize(self, product: int, place: int, matrix: object, both: bool, is_first: bool) "
                   "-> list[typing.Any]"),
           "An operand as `quantize_to_fp8` or `quantize_to_numbers` gives it, with the scales of this layer.");
  layer
      .def("add_error", &LowLayer::add_error, "place"_a, "low"_a, "high"_a,
           "Adds how far a low result is from the high one.")
      .def("add_sampled_error", &LowLayer::add_sampled_error, "product"_a, "low"_a, "left"_a, "right"_a,
           "The same by samples: `left` and `right` are the operands of the high GEMM (input and weight, output "
           "gradient and weight, output gradient and input).")
      .def("add_square", &LowLayer::add_square, "matrix"_a, "Adds to the squared norm of the output's gradient.")
      .def(
          "error_sums",
          [](const LowLayer& self) {
            std::vector<std::pair<double, double>> sums;
            for (const ErrorSums& one : self.error_sums()) sums.emplace_back(one.difference, one.reference);
            return sums;
          },
          "||low - high||^2 and ||high||^2 per GEMM in this step, 0 where not measured or answered by a refresh; waits "
          "for a "
          "device.")
      .def(
          "errors",
          [](const LowLayer& self) {
            std::vector<double> errors;
            for (const ErrorSums& one : self.error_sums()) errors.push_back(one.error());
            return errors;
          },
          "||low - high|| / ||high|| per GEMM, NaN where nothing was measured or a refresh answers it; waits for a "
          "device.")
      .def("square", &LowLayer::square,
           "The squared norm of the output's gradient, None where there was none; waits for a device.")
      .def_prop_ro("has_square", &LowLayer::has_square, "Whether a gradient of the output was measured in this step.")
      .def("sums_on_device", &LowLayer::sums_on_device, nb::sig("def sums_on_device(self) -> typing.Any"),
           "Bytes on a device: three squared norms, then difference, reference and count of four places, as doubles; "
           "None where nothing is on one.")
      .def(
          "patrol_sums", &LowLayer::patrol_sums, nb::sig("def patrol_sums(self) -> typing.Any"),
          "||low - high||^2 and ||high||^2 per GEMM in this step, NaN where not measured; a tensor where they are on a "
          "device, which is not waited for.")
      .def("save", &LowLayer::save, "The amax history as text; waits for a device.")
      .def("restore", &LowLayer::restore, "text"_a);
}

void bind_parts(nb::module_& module) {
  module.def(
      "quantize_to_numbers",
      [](const PythonFrontEnd& front_end, const Recipe& recipe, std::size_t product, std::size_t place,
         nb::handle matrix, float scale, std::uint64_t seed, std::uint64_t transform_seed) {
        const Matrix given = matrix_of(matrix);
        const low::NumberCast cast{.rule = rule_of(recipe, product, place),
                                   .sum_over = low::sums_over(product_of(product))[place],
                                   .delayed_scale = scale,
                                   .seed = seed,
                                   .transform_seed = transform_seed};
        Matrix made;
        {
          const Unlocked unlocked;
          made = low::quantize_to_numbers(front_end, given, cast);
        }
        return tensor_of(made);
      },
      "front_end"_a, "recipe"_a, "product"_a, "place"_a, "matrix"_a, "scale"_a, "seed"_a, "transform_seed"_a,
      nb::sig("def quantize_to_numbers(front_end: FrontEnd, recipe: Recipe, product: int, place: int, matrix: object, "
              "scale: float, seed: int, transform_seed: int) -> typing.Any"),
      "An operand of a GEMM as rounded numbers, of the same shape. `scale`: that of delayed scaling, 0: its own.");
  module.def(
      "quantize_to_fp8",
      [](const PythonFrontEnd& front_end, const Recipe& recipe, std::size_t product, std::size_t place,
         nb::handle matrix, bool by_rows, bool by_columns) {
        const Matrix given = matrix_of(matrix);
        const low::CodeCast cast{.rule = rule_of(recipe, product, place), .by_rows = by_rows, .by_columns = by_columns};
        LowOperand made;
        {
          const Unlocked unlocked;
          const OnDeviceOf current(front_end, given);
          made.codes = low::quantize_to_codes(front_end, given, cast);
        }
        return parts_of(made);
      },
      "front_end"_a, "recipe"_a, "product"_a, "place"_a, "matrix"_a, "by_rows"_a, "by_columns"_a,
      nb::sig("def quantize_to_fp8(front_end: FrontEnd, recipe: Recipe, product: int, place: int, matrix: object, "
              "by_rows: bool, by_columns: bool) -> list[typing.Any]"),
      "An operand as FP8 data and scales of the sides that are wanted: the matrix, then the transposed one.");
  module.def(
      "low_gemm",
      [](const PythonFrontEnd& front_end, const Recipe& recipe, std::size_t product, const nb::list& left,
         const nb::list& right, nb::handle dtype) {
        const Product one = product_of(product);
        const LowOperand first = operand_of_parts(recipe, one, 0, left);
        const LowOperand second = operand_of_parts(recipe, one, 1, right);
        const low::Type type = type_of(dtype);
        Matrix made;
        {
          const Unlocked unlocked;
          const OnDeviceOf current(
              front_end, first.codes.defined() ? first.codes.side(low::sums_over(one)[0]).codes : first.values);
          made = low::low_gemm(front_end, one, first, second, type);
        }
        return tensor_of(made);
      },
      "front_end"_a, "recipe"_a, "product"_a, "left"_a, "right"_a, "dtype"_a,
      nb::sig("def low_gemm(front_end: FrontEnd, recipe: Recipe, product: int, left: list[typing.Any], "
              "right: list[typing.Any], dtype: object) -> typing.Any"),
      "A GEMM of two operands, each FP8 data and scales of the side that it takes, or numbers.");
  module.def(
      "relative_error",
      [](double difference, double reference) {
        return ErrorSums{.difference = difference, .reference = reference, .measured = true}.error();
      },
      "difference"_a, "reference"_a, "||low - high|| / ||high|| of ||low - high||^2 and ||high||^2.");
  module.def("set_fp8_on_host", &low::set_codes_on_host, "wanted"_a,
             "Low paths on the host make FP8 data by the kernels' slow references; for tests.");
}

}  // namespace

void bind_low_layer(nb::module_& module) {
  nb::class_<PythonFrontEnd>(module, "FrontEnd", "Memory and GEMMs of torch for low paths.")
      .def(nb::init<nb::object>(), "functions"_a, "The functions of a gnmr.low.front_end.FrontEnd.");
  nb::class_<StepClock>(module, "StepClock", "What all layers of a model have in common in a step.")
      .def(
          "__init__", [](StepClock* self, std::uint64_t seed) { new (self) StepClock{.seed = seed}; }, "seed"_a = 0)
      .def_rw("seed", &StepClock::seed)
      .def_rw("step", &StepClock::step)
      .def_rw("micro_batch", &StepClock::micro_batch);
  bind_layer(module);
  bind_parts(module);
}

}  // namespace gnmr::python
