// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/injection/harm_measurement.h"

#include <cmath>
#include <limits>

#include "gnmr/torch/squared_norm.h"

namespace gnmr::lab {
namespace {

void drop_gradients(const nn::RecoverableUnits& units) {
  for (const at::Tensor& parameter : units.parameters()) parameter.mutable_grad().reset();
}

double relative_distance(std::span<const at::Tensor> from, std::span<const at::Tensor> parameters) {
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

std::vector<LayerHarm> measure_harm(nn::RecoverableUnits& units, std::span<const std::uint32_t> faulty_layers,
                                    nn::LowPathHook* hook, const std::function<void()>& run_batch) {
  std::vector<LayerHarm> harm;
  for (const std::uint32_t layer : faulty_layers) {
    if (units.runs_low(layer)) harm.push_back({.layer = layer});
  }
  if (harm.empty()) return harm;
  const nn::UnobservedPaths unobserved(units);
  units.set_hook(nullptr);
  run_batch();
  std::vector<at::Tensor> clean;
  for (const at::Tensor& parameter : units.parameters()) clean.push_back(parameter.grad());
  for (LayerHarm& one : harm) {
    drop_gradients(units);
    units.set_hook(one.layer, hook);
    run_batch();
    one.distance = relative_distance(clean, units.parameters());
    units.set_hook(nullptr);
  }
  drop_gradients(units);
  units.set_hook(hook);
  return harm;
}

}  // namespace gnmr::lab
