// SPDX-License-Identifier: Apache-2.0
// How far units' low paths are from their high ones: patrol, and what comparisons came to.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/low/patrol.h"
#include "gnmr/recipes/host_cast.h"
#include "gnmr/torch/front_end.h"
#include "gnmr/torch/units.h"

namespace gnmr::nn {
namespace {

constexpr std::size_t kPlaces = low::kErrorPlaces;
constexpr std::size_t kSums = 3;  // difference, reference, whether measured

void append(const ErrorSums& sums, std::vector<double>& values) {
  values.insert(values.end(), {sums.difference, sums.reference, sums.measured ? 1.0 : 0.0});
}

double larger(double a, double b) {
  if (std::isnan(a)) return b;
  return std::isnan(b) ? a : std::max(a, b);
}

}  // namespace

void RecoverableUnits::patrol(double share, std::int64_t tokens) {
  patrol_round_.clear();
  patrol_rounds_ = 0;
  patrol_share_ = 0;
  if (recipe_ == nullptr || share <= 0 || layers_.empty()) return;
  double all = 0;
  std::vector<double> costs;
  for (const Layer& layer : layers_) {
    const SwitchableLinearImpl& module = *layer.module;
    all += 3.0 * static_cast<double>(tokens) * static_cast<double>(module.in_features()) *
           static_cast<double>(module.out_features());
    costs.push_back(low::patrol_cost({.tokens = tokens,
                                      .in_features = module.in_features(),
                                      .out_features = module.out_features(),
                                      .element_bytes = static_cast<double>(module.weight.element_size()),
                                      .on_device = has_device_numbers(module.weight)}));
  }
  low::PatrolRounds rounds = low::patrol_rounds(costs, all, share);
  patrol_round_ = std::move(rounds.round_of);
  patrol_rounds_ = rounds.count;
  patrol_share_ = rounds.share;
}

std::string RecoverableUnits::patrol_text() const {
  if (patrol_round_.empty()) return "no patrol";
  char cost[64];
  std::snprintf(cost, sizeof cost, "%.1f%% of a step's multiply-adds", 100 * patrol_share_);
  if (patrol_rounds_ == 1) return "all " + std::to_string(layers_.size()) + " layers each step, " + cost;
  return "each of " + std::to_string(layers_.size()) + " layers every " + std::to_string(patrol_rounds_) + " steps, " +
         cost + "; all in each of the first " + std::to_string(low::kSurveySteps);
}

void RecoverableUnits::finish_errors(const formats::Refresh& refresh) {
  if (numbers_ == nullptr) return;
  const c10::DeviceGuard guard(layers_.front().module->weight.device());
  numbers_->judge_samples();
  numbers_->leave_out_answered(refresh);
}

std::unique_ptr<RecoverableUnits::Measurements> RecoverableUnits::send_measurements() const {
  return numbers_ != nullptr ? measurements_with(send_numbers(*numbers_, pool_)) : nullptr;
}

std::unique_ptr<RecoverableUnits::Measurements> RecoverableUnits::send_other_measurements() const {
  return numbers_ != nullptr ? measurements_with(send_rest(*numbers_, pool_)) : nullptr;
}

std::unique_ptr<RecoverableUnits::Measurements> RecoverableUnits::measurements_with(NumbersOnTheWay numbers) const {
  auto measurements = std::make_unique<Measurements>(Measurements{std::move(numbers), {}});
  // Whether a GEMM was measured is known to the host, and so is evidence of emulated quantization.
  if (!measures_products_ && !measures_casts_) return measurements;
  for (const Layer& layer : layers_) measurements->on_host.push_back(layer.module->paths().measured);
  return measurements;
}

void RecoverableUnits::take_measurements(Measurements* measurements) {
  if (measurements != nullptr) take(*measurements, measurements->numbers.wait());
}

void RecoverableUnits::take_measurements(Measurements* measurements, std::span<const std::byte> numbers) {
  if (measurements != nullptr) take(*measurements, measurements->numbers.wait(numbers));
}

void RecoverableUnits::take(Measurements& measurements, const low::HostNumbers& numbers) {
  const auto sums_of = [](const kernels::ErrorTotals& totals) {
    return ErrorSums{totals.difference, totals.reference, totals.measured > 0};
  };
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    LinearPaths& paths = layers_[layer].module->paths();
    // Another step may have begun since.
    paths.measured = {};
    if (!measurements.on_host.empty()) paths.measured = measurements.on_host[layer];
    for (std::size_t product = 0; product < kProductCount; ++product) {
      ProductMeasurement& measured = paths.measured[product];
      measured.squared_norm = numbers.squares[layer * kProductCount + product];
      measured.error = sums_of(numbers.errors[layer * kPlaces + product]);
      for (std::size_t place = 0; place < 2 && !numbers.casts.empty(); ++place) {
        // Evidence of emulated quantization, or of operands that a laboratory changed, is on the host already.
        measured.casts[place] += numbers.casts[(layer * kProductCount + product) * 2 + place];
      }
    }
    paths.saved_error = sums_of(numbers.errors[layer * kPlaces + kProductCount]);
    std::copy_n(numbers.amaxes.begin() + static_cast<std::ptrdiff_t>(layer * kOperandCount), kOperandCount,
                paths.amax.step_amax.begin());
  }
}

std::vector<double> RecoverableUnits::error_sums() const {
  std::vector<double> values;
  values.reserve(layers_.size() * kPlaces * kSums);
  for (const Layer& layer : layers_) {
    const LinearPaths& paths = layer.module->paths();
    for (const ProductMeasurement& measured : paths.measured) append(measured.error, values);
    append(paths.saved_error, values);
  }
  return values;
}

std::vector<double> RecoverableUnits::errors(std::span<const double> error_sums) const {
  if (error_sums.size() != layers_.size() * kPlaces * kSums) {
    throw Error("[errors] expected " + std::to_string(layers_.size() * kPlaces * kSums) + " sums, got " +
                std::to_string(error_sums.size()));
  }
  const auto error_of = [&](std::size_t layer, std::size_t place) {
    const std::size_t first = (layer * kPlaces + place) * kSums;
    return ErrorSums{error_sums[first], error_sums[first + 1], error_sums[first + 2] > 0}.error();
  };
  std::vector<double> errors(units_.size() * kProductCount, std::numeric_limits<double>::quiet_NaN());
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    double* const of_unit = errors.data() + unit * kProductCount;
    for (const Part& part : sources_[unit].parts) {
      for (std::size_t product = 0; product < kProductCount; ++product) {
        if (part.products[product]) of_unit[product] = larger(of_unit[product], error_of(part.layer, product));
      }
      // Saved inputs are what the weight's gradient is made from.
      constexpr auto kWeights = static_cast<std::size_t>(Product::weight_gradient);
      if (part.saved) of_unit[kWeights] = larger(of_unit[kWeights], error_of(part.layer, kProductCount));
    }
  }
  return errors;
}

kernels::UnitLists RecoverableUnits::error_lists() const {
  kernels::UnitLists lists{.first = {0}, .indices = {}};
  const auto add = [&](std::size_t layer, std::size_t place) {
    lists.indices.push_back(static_cast<std::uint32_t>(layer * kPlaces + place));
  };
  for (const Source& source : sources_) {
    for (std::size_t product = 0; product < kProductCount; ++product) {
      for (const Part& part : source.parts) {
        if (part.products[product]) add(part.layer, product);
        // As in `errors`.
        const bool is_saved = part.saved && product == static_cast<std::size_t>(Product::weight_gradient);
        if (is_saved) add(part.layer, kProductCount);
      }
      lists.first.push_back(static_cast<std::uint32_t>(lists.indices.size()));
    }
  }
  return lists;
}

std::vector<std::uint8_t> RecoverableUnits::stale_sites(const formats::Refresh& refresh) const {
  std::vector<std::uint8_t> stale(units_.size() * kProductCount, 0);
  for (std::size_t unit = 0; unit < units_.size() && refresh.factor > 0; ++unit) {
    for (const Part& part : sources_[unit].parts) {
      const LinearPaths& paths = layers_[part.layer].module->paths();
      for (std::size_t product = 0; product < kProductCount; ++product) {
        const bool is_stale = part.products[product] && paths.is_stale(static_cast<Product>(product), refresh);
        if (is_stale) stale[unit * kProductCount + product] = 1;
      }
    }
  }
  return stale;
}

std::vector<double> RecoverableUnits::expected_errors() const {
  std::vector<double> expected(kProductCount, 0.0);
  if (recipe_ == nullptr) return expected;
  for (std::size_t product = 0; product < kProductCount; ++product) {
    expected[product] = recipes::expected_error(*recipe_, static_cast<Product>(product));
  }
  return expected;
}

std::vector<double> RecoverableUnits::cast_errors() const {
  std::vector<double> errors(units_.size() * kProductCount, std::numeric_limits<double>::quiet_NaN());
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    for (const Part& part : sources_[unit].parts) {
      const LinearPaths& paths = layers_[part.layer].module->paths();
      for (std::size_t product = 0; product < kProductCount; ++product) {
        if (!part.products[product]) continue;
        double& error = errors[unit * kProductCount + product];
        for (const formats::Statistics& cast : paths.measured[product].casts) {
          if (cast.elements > 0) error = larger(error, cast.relative_error());
        }
      }
    }
  }
  return errors;
}

std::vector<double> RecoverableUnits::parameter_coefficients(std::span<const double> unit_coefficients) const {
  std::vector<double> coefficients(parameters_.size(), 1.0);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    // The norm of a GEMM's unit is no parameter's; that of saved inputs is its layer's.
    if (sources_[unit].by_products) continue;
    for (const Part& part : sources_[unit].parts) {
      for (const std::size_t index : layers_[part.layer].parameters) {
        coefficients[index] = std::min(coefficients[index], unit_coefficients[unit]);
      }
    }
    for (const std::size_t index : sources_[unit].other_parameters) {
      coefficients[index] = std::min(coefficients[index], unit_coefficients[unit]);
    }
  }
  return coefficients;
}

std::int64_t RecoverableUnits::trial_bytes(std::int64_t tokens) const {
  std::int64_t inputs = 0;
  std::int64_t largest = 0;
  for (const Layer& layer : layers_) {
    const std::int64_t in = layer.module->in_features();
    const std::int64_t out = layer.module->out_features();
    const std::int64_t element = layer.module->weight.element_size();
    if (save_in_8_bits_) inputs += tokens * in * (element - 1);
    // Both operands quantized, the result and its difference, of the GEMM that needs most.
    const std::int64_t by_tokens = tokens * std::max(in, out) + in * out + 2 * tokens * std::max(in, out);
    const std::int64_t by_weights = tokens * (in + out) + 2 * in * out;
    largest = std::max(largest, element * std::max(by_tokens, by_weights));
  }
  return inputs + largest;
}

}  // namespace gnmr::nn
