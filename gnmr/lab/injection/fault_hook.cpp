// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/injection/fault_hook.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <sstream>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/hex_text.h"
#include "gnmr/io/number_text.h"
#include "gnmr/lab/injection/tensor_faults.h"

namespace gnmr::lab {
namespace {

using recipes::Operand;
using recipes::Product;

constexpr double kAmaxOfScaleOne = 57344;  // in E5M2
const std::string kStuckWord = "stuck";
const std::string kCachedWord = "cached";

/// The bytes of FP8 data on the host.
std::string bytes_of(const at::Tensor& codes) {
  const at::Tensor bytes = codes.cpu().contiguous().view(at::kByte);
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

at::Tensor codes_of(const std::string& bytes) {
  at::Tensor codes = at::empty({static_cast<std::int64_t>(bytes.size())}, at::TensorOptions().dtype(at::kByte));
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(codes.mutable_data_ptr()));
  return codes.view(at::kFloat8_e4m3fn);
}

/// Where a drift has come to: the share of the largest at which it cuts. Each of its steps cuts something.
double drift_share(const PlannedFault& fault, std::int64_t step, double strength) {
  const double gone = static_cast<double>(step - fault.step_first + 1) / static_cast<double>(fault.steps);
  return 1 - gone * (1 - 1 / strength);
}

}  // namespace

FaultHook::FaultHook(std::span<const PlannedFault> faults, const FaultHookSettings& settings) : settings_(settings) {
  for (const PlannedFault& fault : faults) {
    if (fault.layer == kNoLayer) continue;
    if (fault.layer >= layers_.size()) layers_.resize(std::size_t{fault.layer} + 1);
    layers_[fault.layer].faults.push_back(fault);
    keeps_observed_ = keeps_observed_ || fault.kind == FaultKind::wrong_amax;
  }
}

const PlannedFault* FaultHook::acting(const nn::LowPathCall& call) const {
  if (call.layer >= layers_.size()) return nullptr;
  const std::vector<PlannedFault>& faults = layers_[call.layer].faults;
  // The last one that has begun is the only one that can be in force.
  const auto next =
      std::upper_bound(faults.begin(), faults.end(), call.step,
                       [](std::int64_t step, const PlannedFault& fault) { return step < fault.step_first; });
  if (next == faults.begin()) return nullptr;
  const PlannedFault& fault = *std::prev(next);
  return fault.covers(call.step) && !(fault.transient && call.rerun) ? &fault : nullptr;
}

run::RandomStream FaultHook::random_of(const nn::LowPathCall& call) const {
  return {run::RandomPurpose::fault_details,
          {settings_.seed, call.layer, call.step, call.micro_batch, static_cast<std::int64_t>(call.product)}};
}

double FaultHook::stuck_largest(const PlannedFault& fault, const at::Tensor& matrix) {
  std::optional<StuckScale>& stuck = layers_[fault.layer].stuck;
  if (!stuck || stuck->step_first != fault.step_first) {
    stuck = {.step_first = fault.step_first, .largest = largest_magnitude(matrix)};
  }
  return stuck->largest;
}

/// The FP8 data are those of the fault's first step, their scale is today's.
at::Tensor FaultHook::cached_weight(const PlannedFault& fault, const at::Tensor& weight) {
  if (weight.numel() == 0) return weight;
  std::optional<CachedWeight>& cached = layers_[fault.layer].cached;
  if (!cached || cached->step_first != fault.step_first) {
    cached = {.step_first = fault.step_first, .codes = fp8_codes(weight)};
  }
  const at::Tensor codes = cached->codes.to(weight.device()).view(weight.sizes());
  return values_of_codes(codes, largest_of(weight)).to(weight.scalar_type());
}

/// What the layer beside this one observed in the same pass: the one before it, in backward the one behind it. Where
/// none did, the layer's own.
at::Tensor FaultHook::of_neighbour(const nn::LowPathCall& call, Operand operand, const at::Tensor& matrix) {
  const Observed& last = observed_[static_cast<std::size_t>(operand)];
  const bool is_of_pass =
      last.matrix.defined() && last.call.step == call.step && last.call.micro_batch == call.micro_batch;
  const bool in_backward = operand == Operand::output_gradient;
  const std::uint32_t earlier = in_backward ? last.call.layer : call.layer;
  const std::uint32_t later = in_backward ? call.layer : last.call.layer;
  return is_of_pass && earlier == later + 1 ? last.matrix : matrix;
}

at::Tensor FaultHook::observed(const nn::LowPathCall& call, Operand operand, const at::Tensor& matrix) {
  const PlannedFault* const fault = acting(call);
  at::Tensor seen = matrix;
  if (fault != nullptr && fault->kind == FaultKind::missed_amax && operand == Operand::output_gradient) {
    seen = at::full({1, 1}, kAmaxOfScaleOne, matrix.options());
  }
  if (fault != nullptr && fault->kind == FaultKind::wrong_amax) seen = of_neighbour(call, operand, matrix);
  if (keeps_observed_) observed_[static_cast<std::size_t>(operand)] = {.call = call, .matrix = matrix};
  return seen;
}

at::Tensor FaultHook::before_cast(const nn::LowPathCall& call, Operand operand, const at::Tensor& matrix) {
  const PlannedFault* const fault = acting(call);
  if (fault == nullptr || fault->kind != FaultKind::input_bad || operand != Operand::input) return matrix;
  return multiply_large(matrix, settings_.strength);
}

at::Tensor FaultHook::in_cast(const nn::LowPathCall& call, Operand operand, const at::Tensor& matrix) {
  const PlannedFault* const fault = acting(call);
  if (fault == nullptr) return matrix;
  const double strength = settings_.strength;
  const bool of_gradient = operand == Operand::output_gradient;
  if (fault->kind == FaultKind::gradient_overflow) return of_gradient ? multiply_large(matrix, strength) : matrix;
  if (fault->kind == FaultKind::stale_scale) return of_gradient ? matrix : cut_at_share(matrix, 1 / strength);
  if (fault->kind == FaultKind::cached_weight && operand == Operand::weight) return cached_weight(*fault, matrix);
  if (operand != Operand::input) return matrix;
  switch (fault->kind) {
    case FaultKind::saturate:
      return cut_at_share(matrix, 1 / strength);
    case FaultKind::overflow:
      return multiply_large(matrix, strength);
    case FaultKind::stuck_amax:
      return cut_at(matrix, stuck_largest(*fault, matrix) / std::sqrt(strength));
    case FaultKind::flush:
      return flush_below_share(matrix, strength / kAllFlushedStrength);
    case FaultKind::drift:
      return cut_at_share(matrix, drift_share(*fault, call.step, strength));
    default:
      return matrix;  // it acts elsewhere
  }
}

bool FaultHook::changes_casts(const nn::LowPathCall& call, Operand operand) const {
  const PlannedFault* const fault = acting(call);
  return fault != nullptr && fault->kind == FaultKind::bit_flip && operand == Operand::input;
}

at::Tensor FaultHook::after_cast(const nn::LowPathCall& call, Operand operand, const at::Tensor& cast) {
  if (!changes_casts(call, operand)) return cast;
  run::RandomStream random = random_of(call);
  return flip_exponent_bits(cast, settings_.strength / kAllFlippedStrength, random);
}

at::Tensor FaultHook::after_product(const nn::LowPathCall& call, const at::Tensor& result) {
  const PlannedFault* const fault = acting(call);
  if (fault == nullptr) return result;
  run::RandomStream random = random_of(call);
  if (fault->kind == FaultKind::wrong_rows) return replace_rows(result, settings_.strength / kAllRowsStrength, random);
  if (fault->kind == FaultKind::nan_gradient && call.product != Product::forward) return put_nan(result, random);
  if (fault->kind == FaultKind::forward_overflow && call.product == Product::forward) {
    // The cast of a next layer may cut infinities to something finite; a NaN goes through.
    return put_nan(multiply_large(result, std::numeric_limits<double>::infinity()), random);
  }
  return result;
}

std::string FaultHook::save() const {
  std::string text;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const auto add_head = [&](const std::string& word, std::int64_t step_first) {
      text += word + ' ' + std::to_string(layer) + ' ' + std::to_string(step_first) + ' ';
    };
    if (const std::optional<StuckScale>& stuck = layers_[layer].stuck) {
      add_head(kStuckWord, stuck->step_first);
      io::append_number(text, stuck->largest);
      text += '\n';
    }
    if (const std::optional<CachedWeight>& cached = layers_[layer].cached) {
      add_head(kCachedWord, cached->step_first);
      text += io::hex_text(bytes_of(cached->codes)) + '\n';
    }
  }
  return text;
}

void FaultHook::restore(const std::string& text) {
  std::vector<Layer> restored = layers_;
  for (Layer& layer : restored) {
    layer.stuck.reset();
    layer.cached.reset();
  }
  std::istringstream in(text);
  for (std::string word, layer_text, step_text, value_text; in >> word;) {
    in >> layer_text >> step_text >> value_text;
    std::int64_t layer = 0;
    std::int64_t step_first = 0;
    bool read = in && io::parse_whole(layer_text, layer) && io::parse_whole(step_text, step_first) && layer >= 0 &&
                static_cast<std::size_t>(layer) < restored.size();
    if (read && word == kStuckWord) {
      StuckScale& scale = restored[static_cast<std::size_t>(layer)].stuck.emplace();
      scale.step_first = step_first;
      read = io::parse_number(value_text, scale.largest);
    } else if (read && word == kCachedWord) {
      restored[static_cast<std::size_t>(layer)].cached = {.step_first = step_first,
                                                          .codes = codes_of(io::bytes_of_hex(value_text))};
    } else {
      read = false;
    }
    if (!read) throw Error("[faults] what was saved of stuck scales and cached weights is not of this run");
  }
  layers_ = std::move(restored);
}

}  // namespace gnmr::lab
