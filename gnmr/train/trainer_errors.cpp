// SPDX-License-Identifier: Apache-2.0
// What is measured of low paths beside a step, and what a laboratory measures of its faults.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "gnmr/core/error.h"
#include "gnmr/torch/squared_norm.h"
#include "gnmr/train/memory_need.h"
#include "gnmr/train/trainer.h"

namespace gnmr::train {
namespace {

std::string mebibytes(std::int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

double relative_distance(const std::vector<at::Tensor>& from, std::span<const at::Tensor> parameters) {
  double difference = 0;
  double size = 0;
  for (std::size_t index = 0; index < from.size(); ++index) {
    if (!from[index].defined()) continue;
    const at::Tensor now = parameters[index].grad();
    size += nn::squared_norm(from[index]);
    difference += now.defined() ? nn::squared_norm(now - from[index]) : nn::squared_norm(from[index]);
  }
  const double distance = std::sqrt(difference / size);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

}  // namespace

/// Where there is no low path there is nothing to compare or to run again.
Options Trainer::options_in_force() const {
  Options options = settings_.options;
  if (recipe_ == nullptr) options.selector = Selector::norms;
  // Where nothing is judged nothing is late.
  if (settings_.controller == "none") options.lag = 0;
  return options;
}

/// Whether anybody asks how far low paths are off.
bool Trainer::uses_errors() const {
  if (recipe_ == nullptr || settings_.controller == "none") return false;
  return settings_.options.selector != Selector::norms || settings_.errors;
}

/// The errors of a pass, a unit and place each; empty where nobody asks.
std::vector<double> Trainer::measured_errors(std::int64_t step, const PassResult& pass) {
  if (!uses_errors()) return {};
  const bool is_evidence = supervisor_->controller().selector() == Selector::evidence ||
                           supervisor_->controller().selector() == Selector::evidence_after_alarm;
  std::vector<double> errors =
      is_evidence && settings_.evidence_from == "casts" ? pass.cast_errors : units_->errors(pass.error_sums);
  tell_errors(step, errors);
  if (supervisor_->controller().selector() == Selector::norms) errors.clear();
  // What the user keeps high is nobody's fault, however its low path would do.
  for (UnitIndex unit = 0; unit < units_->units().size() && !errors.empty(); ++unit) {
    if (pass.forced_high[unit] == 0) continue;
    std::fill_n(errors.begin() + static_cast<std::ptrdiff_t>(unit * nn::kProductCount), nn::kProductCount,
                std::numeric_limits<double>::quiet_NaN());
  }
  return errors;
}

void Trainer::tell_errors(std::int64_t step, std::span<const double> errors) {
  if (!errors_) return;
  std::vector<std::uint8_t> measured;
  for (const double error : errors) measured.push_back(std::isnan(error) ? 0 : 1);
  errors_->write(step, errors, measured);
}

std::string Trainer::control_text() const {
  if (!uses_errors()) return {};
  std::string text = "patrol: " + units_->patrol_text();
  if (supervisor_->controller().selector() != Selector::trial) return text;
  const std::int64_t needed = units_->trial_bytes(settings_.batch * settings_.sequence);
  text += "; a trial needs up to " + mebibytes(needed) + " beyond a step";
  const std::int64_t free = device_.is_cpu() ? free_host_bytes() : free_device_bytes(device_);
  if (free > 0) text += ", " + mebibytes(free) + " are free";
  if (free > 0 && needed > free) text += " (WARNING: it may not fit; smaller --batch, or --selector norms)";
  return text;
}

/// How far each fault that is in force, alone, moves the gradient of this batch. It leaves no trace in the run; the
/// seconds that it took.
double Trainer::measure_harm(std::int64_t batch) {
  if (!harm_ || laboratory_ == nullptr) return 0;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::uint32_t> faulty;
  for (const std::uint32_t layer : laboratory_->faulty_layers(batch)) {
    if (units_->runs_low(layer)) faulty.push_back(layer);
  }
  if (faulty.empty()) return 0;
  const std::string memory = laboratory_->save();
  const nn::UnobservedPaths unobserved(*units_);
  units_->set_hook(nullptr);
  run_micro_batches(batch);
  std::vector<at::Tensor> clean;
  for (const at::Tensor& parameter : units_->parameters()) clean.push_back(parameter.grad());
  for (const std::uint32_t layer : faulty) {
    drop_gradients();
    units_->set_hook(layer, laboratory_->hook());
    run_micro_batches(batch);
    harm_->write(
        {.step = batch, .layer = layer_names_[layer], .distance = relative_distance(clean, units_->parameters())});
    units_->set_hook(nullptr);
  }
  drop_gradients();
  units_->set_hook(laboratory_->hook());
  laboratory_->restore(memory);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace gnmr::train
